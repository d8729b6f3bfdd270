"""Pictures of pipes: `hami_tools.Graph` and `hami graph`."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import hami
import pytest
from hami.cli import main

from hami_tools import Graph
from hami_tools.graph.labels import size_label

DIAMOND = {
    "load": {"backend": "S[Identity,Identity]", "max": 8, "instance_num": 2, "next": "left,right"},
    "left": {"backend": "Identity", "next": "join"},
    "right": {"backend": "Identity", "next": "join"},
    "join": {"backend": "Identity", "map": "left[result:data],right[result:other]"},
}
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '<script>alert("x")</script>#|;`'


def graph_of(config: Any) -> Graph:
    with hami.pipe(config) as pipe:
        return Graph.of(pipe)


def renamed(name: str) -> Graph:
    """Return the graph of a description from elsewhere, in which a name may contain any character."""
    with hami.pipe("Add(size=3)") as pipe:
        description = pipe.describe()
    description["nodes"] = {name: description["nodes"]["default"]}
    description["nodes"][name]["backends"][0]["params"]["size"] = name
    return Graph.from_description(description)


def test_the_text_shows_backends_settings_and_edges_in_the_order_of_the_configuration() -> None:
    assert graph_of(DIAMOND).render().splitlines() == [
        "load: S[Identity,Identity]",
        "  instance_num 2, max 8",
        "  --> left",
        "  --> right",
        "left: Identity",
        "  --> join  (result -> data)",
        "right: Identity",
        "  --> join  (result -> other)",
        "join: Identity",
    ]


def test_numbers_of_a_running_pipe_are_shown() -> None:
    with hami.pipe("Identity") as pipe:
        pipe([{"data": number} for number in range(3)])
        lines = Graph.of(pipe).render().splitlines()
        assert "3 completed" in Graph.of(pipe)._repr_html_()
    assert lines[0] == "default: Identity"
    assert lines[1] == "  3 completed"
    assert lines[2].startswith("  batch: ")


@pytest.mark.parametrize("format", ["text", "mermaid", "dot", "svg", "html"])
def test_a_format_is_the_same_in_every_run(format: str) -> None:
    assert graph_of(DIAMOND).render(format) == graph_of(DIAMOND).render(format)


def test_mermaid_has_an_edge_with_the_mapped_keys() -> None:
    lines = graph_of(DIAMOND).render("mermaid").splitlines()
    assert lines[0] == "flowchart LR"
    assert '  n1 -->|"result → data"| n3' in lines
    assert '  n0["load<br>S[Identity,Identity]<br>instance_num 2<br>max 8"]' in lines


def test_dot_quotes_names() -> None:
    lines = renamed('say "hi"').render("dot").splitlines()
    assert lines[0] == "digraph pipe {"
    assert '  n0 [label="say \\"hi\\"\\nAdd"];' in lines
    assert lines[-1] == "}"


def test_boxes_of_the_svg_do_not_overlap() -> None:
    root = ElementTree.fromstring(graph_of(DIAMOND).render("svg"))
    boxes = [
        tuple(float(box.attrib[name]) for name in ("x", "y", "width", "height")) for box in root.iter(f"{SVG}rect")
    ]
    assert len(boxes) == 4
    for number, (x, y, width, height) in enumerate(boxes):
        assert x >= 0
        assert y >= 0
        assert x + width <= float(root.attrib["width"])
        assert y + height <= float(root.attrib["height"])
        for other_x, other_y, other_width, other_height in boxes[number + 1 :]:
            apart_x = x + width <= other_x or other_x + other_width <= x
            apart_y = y + height <= other_y or other_y + other_height <= y
            assert apart_x or apart_y
    assert len([path for path in root.iter(f"{SVG}path") if "marker-end" in path.attrib]) == 4


class References(HTMLParser):
    """Collects what a page refers to, its ids and its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            if name in ("href", "src", "xlink:href"):
                self.references.append(value or "")
            if name == "id":
                self.ids.append(value or "")


def test_the_page_loads_nothing_and_its_links_lead_to_the_nodes() -> None:
    page = References()
    page.feed(graph_of(DIAMOND).render("html"))
    assert page.references == ["#node-0", "#node-1", "#node-2", "#node-3"]
    assert [name for name in page.ids if name.startswith("node-")] == ["node-0", "node-1", "node-2", "node-3"]
    assert "script" not in page.tags
    assert "url(http" not in graph_of(DIAMOND).render("html")


@pytest.mark.parametrize("format", ["mermaid", "svg", "html"])
def test_names_cannot_add_markup(format: str) -> None:
    text = renamed(HOSTILE).render(format)
    assert "<script" not in text
    assert "alert" in text


def _contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG 2 defines it."""

    def luminance(color: str) -> float:
        parts = [int(color[index : index + 2], 16) / 255 for index in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(
    ("text", "box", "page"),
    [("#1f2328", "#f6f8fa", "#ffffff"), ("#e6edf3", "#161b22", "#0d1117")],
    ids=["light", "dark"],
)
def test_text_and_borders_have_enough_contrast(text: str, box: str, page: str) -> None:
    style = graph_of("Identity").render("svg")
    note = "#424a53" if page == "#ffffff" else "#b7bdc8"
    border = "#57606a" if page == "#ffffff" else "#8d96a0"
    assert all(color in style for color in (text, box, page, note, border))
    assert min(_contrast(text, box), _contrast(note, box), _contrast(note, page)) >= 4.5
    assert _contrast(border, page) >= 3.0


def test_a_comparison_names_what_was_added_removed_and_changed() -> None:
    after = {
        "load": {"backend": "S[Identity,Identity]", "max": 16, "instance_num": 2, "next": "left"},
        "left": {"backend": "S[Identity,Identity]", "next": "join"},
        "join": {"backend": "Identity", "next": "new"},
        "new": {"backend": "Identity"},
    }
    compared = graph_of(DIAMOND).compare(graph_of(after))
    assert compared.differs
    assert {node.name: node.change for node in compared.nodes} == {
        "load": "changed",
        "left": "changed",
        "join": "",
        "new": "added",
        "right": "removed",
    }
    lines = compared.render().splitlines()
    assert "    max: 8 -> 16" in lines
    assert "    Identity -> S[Identity,Identity]" in lines
    assert "    - --> right" in lines
    assert "    + --> new" in lines
    for format in ("mermaid", "dot", "svg", "html"):
        assert "removed" in compared.render(format) or "#cf222e" in compared.render(format)
    assert not graph_of(DIAMOND).compare(graph_of(DIAMOND)).differs


def test_two_graphs_with_opposite_edges_can_be_compared() -> None:
    one = {"a": {"backend": "Identity", "next": "b"}, "b": {"backend": "Identity"}}
    other = {"b": {"backend": "Identity", "next": "a"}, "a": {"backend": "Identity"}}
    compared = graph_of(one).compare(graph_of(other))
    assert sorted(edge.change for edge in compared.edges) == ["added", "removed"]
    ElementTree.fromstring(compared.render("svg"))


def test_an_unknown_format_names_the_formats() -> None:
    with pytest.raises(hami.ConfigError, match=r'unknown format "swg"; did you mean "?svg"?.*the formats are text, '):
        graph_of("Identity").render("swg")


def test_the_command_builds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    @hami.register
    class TestGraphNeverBuilt(hami.Backend):
        def __init__(self) -> None:
            raise AssertionError("built")

        def forward(self, batch: list[Any]) -> None: ...

    assert main(["graph", "TestGraphNeverBuilt"]) == 0
    assert capsys.readouterr().out == "default: TestGraphNeverBuilt\n"


def test_the_command_shows_recorded_statistics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "Identity", "--text", "a", "--text", "b", "--json", "--stats"]) == 0
    (tmp_path / "run.json").write_text(capsys.readouterr().out)
    assert main(["graph", "Identity", "--stats", str(tmp_path / "run.json")]) == 0
    assert "  2 completed\n" in capsys.readouterr().out
    (tmp_path / "empty.json").write_text("{}\n")
    assert main(["graph", "Identity", "--stats", str(tmp_path / "empty.json")]) == 1
    assert 'has no line with "stats"' in capsys.readouterr().err


def test_the_command_compares_and_writes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "Identity", "--diff", "Identity"]) == 0
    assert main(["graph", "Identity", "--diff", "S[Identity,Identity]"]) == 1
    assert "~ default: S[Identity,Identity]" in capsys.readouterr().out
    page = tmp_path / "graph.html"
    assert main(["graph", "Identity", "--format", "html", "--output", str(page)]) == 0
    assert capsys.readouterr().out == ""
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_command_reports_a_wrong_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "NoSuchBackendAtAll"]) == 1
    assert "NoSuchBackendAtAll" in capsys.readouterr().err


def test_the_command_prints_the_description_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "Identity", "--json"]) == 0
    with hami.pipe("Identity") as pipe:
        assert json.loads(capsys.readouterr().out) == pipe.describe()


def test_inputs_show_the_size_of_the_data_on_the_edges(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("two.toml").write_text(
        '[first]\nbackend = "S[Identity,Identity]"\nnext = "second"\n\n[second]\nbackend = "Identity"\n'
    )
    assert main(["graph", "two.toml", "--text", "x" * 2000, "--text", "x" * 1000]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "first: S[Identity,Identity]",
        "  --> second  (1.5 kB)",
        "second: Identity",
    ]
    assert main(["graph", "two.toml", "--input", "missing"]) == 1
    assert "no input can be read" in capsys.readouterr().err


def test_the_size_of_a_value_is_that_of_its_content() -> None:
    numpy = pytest.importorskip("numpy")
    from hami_tools.graph.sizes import size_of

    value = {"a": [b"12", "\u00e9"], "b": numpy.zeros(3, numpy.float32), "c": (1, 2.0), "d": None}
    assert size_of(value) == 2 + 2 + 12 + 16
    assert size_label(999) == "999 B"
    assert size_label(1_234_567) == "1.23 MB"
    assert size_label(5e12) == "5,000 GB"


LAYERS = {"nodes": {"input x": [], "stem": ["Conv", "Conv", HOSTILE]}, "edges": [["input x", "stem", "1 x 3"]]}


@pytest.mark.parametrize("form", ["text", "mermaid", "dot", "svg", "html"])
def test_layers_of_a_model_are_a_picture_in_each_format(form: str) -> None:
    shown = Graph.from_layers(LAYERS).render(form)
    assert "2 Conv" in shown
    assert "stem" in shown
    assert form not in ("svg", "html") or "<script>alert" not in shown


def test_the_command_shows_the_layers_that_a_plugin_describes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = []

    def describe(path: str, question: str) -> dict[str, Any]:
        asked.append((path, question))
        failed = {"other 1.0": {"error": "it is broken"}}
        if path.endswith(".broken"):
            return {**failed, "more 1.0": {"error": "so is it"}}
        return {**failed, "acme 1.0": LAYERS} if path.endswith(".acme") else {}

    monkeypatch.setattr("hami_tools.graph.command.describe_file", describe)
    assert main(["graph", "model.acme", "--layers"]) == 0
    assert capsys.readouterr().out.startswith("input x:\n  --> stem  (1 x 3)\nstem: 2 Conv, ")
    assert main(["graph", "model.acme", "--layers", "--json", "--output", str(tmp_path / "out.json")]) == 0
    assert json.loads((tmp_path / "out.json").read_text()) == LAYERS
    assert main(["graph", "model.broken", "--layers"]) == 1
    assert "no plugin can show the layers of model.broken: other 1.0: it is broken; more 1.0" in capsys.readouterr().err
    assert main(["graph", "model.other", "--layers"]) == 1
    assert "no installed plugin shows the layers of model.other" in capsys.readouterr().err
    assert main(["graph", "model.acme", "--layers", "--diff", "Identity"]) == 1
    assert "--layers shows a model file, without --live" in capsys.readouterr().err
    assert asked[0] == ("model.acme", "hami_model_layers")


def test_a_model_file_is_shown_by_its_layers_unless_its_node_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def describe(path: str, question: str = "hami_show_file") -> dict[str, Any]:
        if path == "broken.onnx":
            raise hami.ConfigError("it cannot be read")
        return {"acme 1.0": LAYERS} if path == "model.onnx" and question == "hami_model_layers" else {}

    monkeypatch.setattr("hami_tools.graph.command.describe_file", describe)
    monkeypatch.setattr("hami_tools.graph.command.lines_of_file", lambda path, facts: [f"facts of {path}"])
    with hami.pipe("Identity") as pipe:
        described = pipe.describe()
    monkeypatch.setattr("hami_tools.graph.command._describe", lambda *_: described)
    for asked in ([], ["--layers"]):
        assert main(["graph", "model.onnx", *asked]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith("input x:\n  --> stem  (1 x 3)\nstem: 2 Conv, ")
        assert shown.endswith("facts of model.onnx\n")
    assert main(["graph", "model.onnx", "--format", "html"]) == 0
    assert "2 Conv" in capsys.readouterr().out
    for source, *asked in (["model.onnx", "--no-layers"], ["model.onnx", "--set", "max=2"], ["other.onnx"]):
        assert main(["graph", source, *asked]) == 0
        assert capsys.readouterr().out.startswith("default: Identity"), source
    monkeypatch.undo()
    monkeypatch.setattr("hami_tools.graph.command.describe_file", describe)
    assert main(["graph", "broken.onnx", "--layers"]) == 1
    assert "it cannot be read" in capsys.readouterr().err
