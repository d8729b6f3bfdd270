"""The documentation site: links and pages are converted, generated tables are complete. MkDocs is not needed."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import pytest
from _lib.paths import ROOT, pyproject
from _lib.site import build, declarations, keys, page_text, pages, plugin_keys, plugins_page, python_api
from _lib.site.declarations import Declaration

DOCS = ROOT / pages.DOCS
PLUGINS = plugin_keys.every(ROOT)
SITE_PAGES = {
    "hami-core/docs/howto/serve.md": "howto/serve.md",
    "hami-core/docs/index.md": "index.md",
    "hami-plugins/hami-onnx/README.md": "plugins/hami-onnx.md",
    "README.md": "contribute/repository.md",
}


def convert(text: str, source: str = "hami-core/docs/howto/serve.md") -> tuple[str, list[str]]:
    return page_text.converted(text, source, SITE_PAGES[source], page_text.finder(ROOT, SITE_PAGES, {}))


# ---- pages ----


@pytest.mark.parametrize(
    ("source", "written", "on_the_site"),
    [
        ("hami-core/docs/howto/serve.md", "../index.md", "../index.md"),
        ("hami-core/docs/howto/serve.md", "../../../hami-plugins/hami-onnx/README.md", "../plugins/hami-onnx.md"),
        ("hami-core/docs/index.md", "../../README.md#install", "contribute/repository.md#install"),
        ("README.md", "hami-core/docs/howto/serve.md", "../howto/serve.md"),
        ("README.md", "hami-plugins/hami-onnx", "../plugins/hami-onnx.md"),
        ("README.md", "CMakeLists.txt", "../files/CMakeLists.txt"),
        ("README.md", "hami-core/docs/howto/examples/embed.cpp", "../howto/examples/embed.cpp"),
        ("README.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("README.md", "#install", "#install"),
    ],
)
def test_a_link_leads_to_the_same_page_on_the_site(source: str, written: str, on_the_site: str) -> None:
    assert convert(f"See [this\npage]({written}).", source) == (f"See [this\npage]({on_the_site}).", [])


def test_a_link_may_be_defined_below_its_text() -> None:
    text = "See [the `index`][a] and [x][b].\n\n[a]: ../index.md#install\n[b]: https://example.org/a.md\n"
    assert convert(text) == (text, [])
    assert convert("[a]: missing.md\n")[1] == ["missing.md"]


@pytest.mark.parametrize("target", ["missing.md", "../../../../outside.txt", "../../../tests/python"])
def test_a_link_to_nothing_is_reported(target: str) -> None:
    assert convert(f"[x]({target})")[1] == [target]


@pytest.mark.parametrize(
    "text", ["```python\nx = a[0](missing.md)\n```\n", "`[x](missing.md)`\n", "``[`](missing.md)``\n"]
)
def test_code_is_not_changed(text: str) -> None:
    assert convert(text) == (text, [])


def test_a_linked_file_that_is_not_a_page_is_published() -> None:
    linked: dict[str, str] = {}
    page_text.converted("[x](LICENSE)", "README.md", "a.md", page_text.finder(ROOT, SITE_PAGES, linked))
    assert linked == {"LICENSE": "files/LICENSE"}


def test_a_directive_names_the_file_of_its_block_and_is_hidden() -> None:
    text = "<!-- file: a.toml -->\n<!-- needs: x -->\n```toml\n[a]\n```\n<!-- skip: reason -->\n```python\nb\n```\n"
    assert convert(text)[0] == '```toml title="a.toml"\n[a]\n```\n```python\nb\n```\n'


def test_a_bar_in_code_in_a_table_is_one_bar() -> None:
    assert convert("| `str \\| None` | a |\n\n`a\\|b`\n")[0] == "| `str | None` | a |\n\n`a\\|b`\n"


def test_an_item_below_an_item_is_indented_as_markdown_needs_it() -> None:
    assert convert("* a\n  * b\n    * c\n")[0] == "* a\n    * b\n        * c\n"


def test_an_example_in_a_docstring_is_a_code_block() -> None:
    text = "Return it.\n\n>>> f(1)\n2\n\nMore."
    assert page_text.fenced(text) == "Return it.\n\n```pycon\n>>> f(1)\n2\n```\n\nMore."


def test_every_link_of_every_page_leads_somewhere() -> None:
    places = pages.every(ROOT)
    find = page_text.finder(ROOT, places, {})
    broken = {
        source: found
        for source, place in places.items()
        if (found := page_text.converted((ROOT / source).read_text("utf-8"), source, place, find)[1])
    }
    assert broken == {}


def test_every_page_has_a_place_of_its_own() -> None:
    places = list(pages.every(ROOT).values())
    assert sorted(set(places)) == sorted(places)
    assert {f"plugins/{plugin}.md" for plugin in PLUGINS} <= set(places)


def test_a_pattern_stands_for_pages_that_are_listed_nowhere_else() -> None:
    nav = ["index.md", {"A": ["a/x.md", "a/*"]}, {"B": ["a/y.md", {"C": ["*"]}]}, "*/*/*"]
    places = ["a/b/v.md", "a/w.md", "a/x.md", "a/y.md", "a/z.md", "b.md", "index.md"]
    assert pages.expanded(nav, places) == [
        "index.md",
        {"A": ["a/x.md", "a/w.md", "a/z.md"]},
        {"B": ["a/y.md", {"C": ["b.md"]}]},
        "a/b/v.md",
    ]


# ---- configuration keys ----


@pytest.mark.parametrize(
    ("text", "declaration"),
    [
        ("key: str", Declaration("key", "str", None)),
        ("max: int = 1024 {1..} 'it''", None),
        ("max: int = 1024 {1..} 'values held'", Declaration("max", "int", "1024", "1..", "values held")),
        ("hint: str = 'a;b' {a;b,c}", Declaration("hint", "str", "a;b", "a;b,c")),
        ("cache::dir: path? 'a folder'", Declaration("cache::dir", "path", "none", "", "a folder")),
        ("ttl: duration = None", Declaration("ttl", "duration", "none")),
        ("list: list = ''", Declaration("list", "list", "")),
    ],
)
def test_a_declaration_is_read(text: str, declaration: Declaration | None) -> None:
    if declaration is None:
        with pytest.raises(ValueError, match="not the declaration"):
            declarations.declared(text)
    else:
        assert declarations.declared(text) == declaration


def test_every_parameter_of_the_core_is_in_the_table() -> None:
    text = (DOCS / "reference" / "backends.md").read_text("utf-8")
    parts = re.findall(r"<!-- registry (\w+) -->\n(.*?)<!-- end -->", text, re.DOTALL)
    declared = {key for _, part in parts for key in re.findall(r"^\| `(\w+): ", part, re.MULTILINE)}
    assert declared - {row.key.strip("`") for row in [*keys.node_rows(ROOT), *keys.core_rows(ROOT)]} == set()


def test_a_key_of_a_node_has_one_row_in_the_core() -> None:
    rows = [row for row in [*keys.node_rows(ROOT), *keys.core_rows(ROOT)] if row.key == "`batching_timeout`"]
    assert [row.where for row in rows] == ["[node](configuration.md#batching-and-batching_timeout)"]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_every_backend_in_the_metadata_of_a_plugin_is_found(plugin: str) -> None:
    entry_points = pyproject(ROOT / "hami-plugins" / plugin)["project"].get("entry-points", {})
    found = {backend.name: backend for backend in PLUGINS[plugin]}
    assert set(entry_points.get("hami.backends", {})) <= set(found)
    assert all(backend.summary for backend in found.values())


def test_parameters_of_a_native_plugin_are_found() -> None:
    (backend,) = PLUGINS["hami-openvino"]
    found = {parameter.key: parameter for parameter in backend.parameters}
    assert found["hint"].values == "latency,throughput,none"
    assert found["model"].default is None


def write_plugin(folder: Path, backend: str) -> Path:
    """Write a plugin with one backend X, whose module is `backend`; return its folder."""
    plugin = folder / "hami-plugins" / "acme"
    module = plugin / "python" / "acme"
    module.mkdir(parents=True)
    entry_points = 'entry-points."hami.backends".X = "acme.plugin"\nentry-points.hami.acme = "acme.plugin"\n'
    (plugin / "pyproject.toml").write_text(f'[project]\nname = "acme"\n{entry_points}')
    (module / "plugin.py").write_text('def hami_register(registry):\n    registry.add("X", "acme.x:X")\n')
    (module / "base.py").write_text(
        "from pathlib import Path\nimport hami\nclass Base(hami.Backend):\n"
        '    """Base."""\n    color: str = "bgr"\n    file: Path\n    _hidden: int = 1\n'
    )
    (module / "x.py").write_text(backend)
    return plugin


def test_a_backend_has_the_parameters_of_its_bases_and_its_own(tmp_path: Path) -> None:
    source = """\
from typing import Annotated, ClassVar, Literal
import hami
from acme.base import Base as Parent

MOST = 8
Color = Literal["a", "b"]

class X(Parent):
    \"\"\"Do it.

    More.
    \"\"\"
    thread = "serialized"
    shared: ClassVar[int] = 1
    color = "rgb"
    most: Annotated[int, hami.Key("max"), "the "
                    "limit"] = MOST
    kind: Color | None = None
    size: hami.ByteSize = 100_000
    flags: list[str] = []
    wait: "hami.Duration" = 0.5
    on: bool = True
"""
    (backend,) = plugin_keys.of_plugin(write_plugin(tmp_path, source))
    assert backend.summary == "Do it."
    assert backend.parameters == [
        Declaration("color", "str", "rgb"),
        Declaration("file", "path", None),
        Declaration("max", "int", "8", "", "the limit"),
        Declaration("kind", "str", "none", "a,b"),
        Declaration("size", "bytesize", "100000"),
        Declaration("flags", "list", "[]"),
        Declaration("wait", "duration", "0.5"),
        Declaration("on", "bool", "true"),
    ]


def test_a_backend_without_a_source_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='the class of the backend "X", X, is not in'):
        plugin_keys.of_plugin(write_plugin(tmp_path, "class Y: ...\n"))


def test_the_table_has_one_cell_for_each_column() -> None:
    rows = [line for line in keys.page(ROOT).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}


def test_the_page_of_the_plugins_has_no_empty_table() -> None:
    assert not re.search(r"^\|---\|---\|\n(?!\|)", plugins_page.page(ROOT), re.MULTILINE)


def test_generated_pages_link_to_pages_that_exist() -> None:
    generated = {
        keys.PLACE: keys.page(ROOT),
        plugins_page.PLACE: plugins_page.page(ROOT),
        python_api.API_PLACE: python_api.api_page(ROOT),
        python_api.COMMANDS_PLACE: python_api.commands_page(ROOT),
    }
    places = {*pages.every(ROOT).values(), *generated}
    for place, text in generated.items():
        links = re.findall(r"\]\(([^)#:]+)", text)
        linked = {posixpath.normpath(posixpath.join(posixpath.dirname(place), link)) for link in links}
        assert linked - places == set(), place


# ---- the package ----


def test_every_public_name_is_on_the_page_of_the_python_api() -> None:
    page = python_api.api_page(ROOT)
    directives = re.findall(r"^::: hami\.(\w+)$", page, re.MULTILINE)
    public = [name for name in python_api.public_names(ROOT) if not name.startswith("_")]
    assert sorted(directives) == sorted([*public, "testing"])
    assert "Other names" not in page, "put the new name into a group of python_api.GROUPS"


def test_the_page_of_the_command_line_has_every_command() -> None:
    page = python_api.commands_page(ROOT)
    assert {"hami run", "hami check", "hami doctor"} <= set(re.findall(r"^## (.*)$", page, re.MULTILINE))
    assert "usage: hami run [-h]" in page
    assert "\x1b" not in page


# ---- what the finished site loads ----


@pytest.mark.parametrize(
    ("text", "suffix", "found"),
    [
        ('<script src="https://a.org/x.js"></script>', ".html", ["https://a.org/x.js"]),
        ("<link rel=stylesheet href=//a.org/x.css>", ".html", ["//a.org/x.css"]),
        ("<style>@import 'https://a.org/f.css';</style>", ".html", ["https://a.org/f.css"]),
        ('<p style="background: url(http://a.org/i.png)">', ".html", ["http://a.org/i.png"]),
        ('<a href="https://a.org">a</a><link rel="canonical" href="https://a.org/">', ".html", []),
        ('<script src="../assets/x.js"></script><code>url(https://a.org)</code>', ".html", []),
        ("a { src: url('https://a.org/f.woff2') }", ".css", ["https://a.org/f.woff2"]),
        ("a { src: url(data:image/svg+xml;charset=utf-8,x) }", ".css", []),
    ],
)
def test_files_from_other_hosts_are_found(text: str, suffix: str, found: list[str]) -> None:
    assert build.loaded_from_elsewhere(text, suffix) == found


def test_a_diagram_without_the_script_that_draws_it_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<pre class="mermaid"></pre>')
    (tmp_path / "b.html").write_text('<script src="mermaid.min.js"></script><pre class="mermaid"></pre>')
    assert list(build.external(tmp_path)) == ["a.html: the script that draws diagrams"]
