"""The documentation site: Markdown is adapted, generated tables are complete, files of other hosts are found."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from _lib import site
from _lib.paths import ROOT
from pages import generated, hooks

BACKENDS = [
    {
        "name": "X",
        "owner": "hami-onnx",
        "doc": "Do it a|b.\n\nMore.",
        "params": [{"text": "kind: str = 'a' {a|b}", "help": "which"}, {"text": "at: int?", "help": ""}],
    }
]


def adapted(text: str) -> str:
    return hooks.on_page_markdown(text, SimpleNamespace(), {}, None)


# ---- pages ----


@pytest.mark.parametrize("text", ["```yaml\na:\n  - b\n| `a \\| b` |\n```\n", "`a\\|b`\n"])
def test_code_is_not_changed(text: str) -> None:
    assert adapted(text) == text


def test_a_directive_names_the_file_of_its_block() -> None:
    text = "<!-- file: a.toml -->\n<!-- needs: x -->\n```toml\n[a]\n```\n"
    assert adapted(text) == '```toml title="a.toml"\n[a]\n```\n'


def test_a_bar_in_code_in_a_table_is_one_bar() -> None:
    assert adapted("| `str \\| None` | a |\n\n`a\\|b`\n") == "| `str | None` | a |\n\n`a\\|b`\n"


def test_an_item_below_an_item_is_indented_as_markdown_needs_it() -> None:
    assert adapted("* a\n  * b\n    * c\n") == "* a\n    * b\n        * c\n"


def test_a_pattern_stands_for_pages_that_are_listed_nowhere_else() -> None:
    docs = hooks.DOCS
    nav = ["index.md", {"A": ["a/x.md", "a/*"]}, {"B": [{"Named": "a/y.md"}, {"C": ["*.md"]}]}, "plugins/*/R.md"]
    pages = ["b.md", "plugins/v/R.md", *(f"{docs}{name}.md" for name in ("a/w", "a/x", "a/y", "a/z", "index"))]
    assert hooks.expanded(nav, set(pages), pages) == [
        f"{docs}index.md",
        {"A": [f"{docs}a/x.md", f"{docs}a/w.md", f"{docs}a/z.md"]},
        {"B": [{"Named": f"{docs}a/y.md"}, {"C": ["b.md"]}]},
        "plugins/v/R.md",
    ]


def test_the_table_has_one_cell_for_each_column() -> None:
    rows = [line for line in generated.keys_page(BACKENDS).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}
    assert rows[2:] == ["| `at: int?` | X | hami-onnx |  |", r"| `kind: str = 'a' {a\|b}` | X | hami-onnx | which |"]


def test_the_page_of_the_plugins_has_each_plugin_and_no_empty_table() -> None:
    page = generated.plugins_page(BACKENDS, ROOT / "hami-plugins")
    assert not re.search(r"^\|---\|---\|\n(?!\|)", page, re.MULTILINE)
    assert "\n## [hami-torch](../../../hami-plugins/hami-torch/README.md)\n" in page


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
    assert site.loaded_from_elsewhere(text, suffix) == found


def test_a_diagram_without_the_script_that_draws_it_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<pre class="mermaid"></pre>')
    (tmp_path / "b.html").write_text('<script src="mermaid.min.js"></script><pre class="mermaid"></pre>')
    assert list(site.external(tmp_path)) == ["a.html: the script that draws diagrams"]
