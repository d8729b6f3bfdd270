"""A graph as an SVG picture that follows the light or dark colours of the reader."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from hami.cli import printable

from hami_tools.graph.layout import Box, Layout, place

if TYPE_CHECKING:
    from hami_tools.graph.graph import Edge, Graph, Node

LINE = 17.0  # pixels
CHARACTER = 7.3  # width of a character of the monospace font at 12 px
PADDING = 10.0
MAX_CHARACTERS = 44  # of a line in a box

STYLE = """
svg.hami { font: 12px ui-monospace, Menlo, Consolas, monospace; background: #ffffff; }
.hami rect { fill: #f6f8fa; stroke: #57606a; stroke-width: 1.5; }
.hami text { fill: #1f2328; }
.hami .name { font-weight: bold; }
.hami .note { fill: #424a53; }
.hami path { fill: none; stroke: #57606a; stroke-width: 1.5; }
.hami marker path { fill: #57606a; }
.hami .only-map, .hami .removed { stroke-dasharray: 5 4; }
.hami .added { stroke: #1a7f37; stroke-width: 3; }
.hami .removed { stroke: #cf222e; stroke-width: 3; }
.hami .changed { stroke: #9a6700; stroke-width: 3; }
.hami a:focus rect { stroke: #0550ae; stroke-width: 4; }
@media (prefers-color-scheme: dark) {
  svg.hami { background: #0d1117; }
  .hami rect { fill: #161b22; stroke: #8d96a0; }
  .hami text { fill: #e6edf3; }
  .hami .note { fill: #b7bdc8; }
  .hami path { stroke: #8d96a0; }
  .hami marker path { fill: #8d96a0; }
  .hami .added { stroke: #3fb950; }
  .hami .removed { stroke: #ff7b72; }
  .hami .changed { stroke: #d29922; }
  .hami a:focus rect { stroke: #79c0ff; }
}
"""


def render(graph: Graph, *, links: bool = False) -> str:
    """Return an SVG element. With `links`, each node links to `#node-<index>` of its page."""
    lines = {node.name: _lines(node) for node in graph.nodes}
    sizes = {
        name: (max(len(line) for line in texts) * CHARACTER + 2 * PADDING, len(texts) * LINE + 2 * PADDING)
        for name, texts in lines.items()
    }
    widest = max((len(label) for edge in graph.edges for label in edge.labels), default=0)
    layout = place(graph, sizes, min(widest, MAX_CHARACTERS) * CHARACTER + 40)
    title = f"Pipeline with {len(graph.nodes)} node{'' if len(graph.nodes) == 1 else 's'}"
    role = "group" if links else "img"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="hami" role="{role}" '
        f'aria-label="{title}" width="{layout.width:.0f}" height="{layout.height:.0f}" '
        f'viewBox="0 0 {layout.width:.0f} {layout.height:.0f}">',
        f"<title>{title}</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="hami-arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8Z"/></marker></defs>',
    ]
    parts += [_edge(edge, layout) for edge in graph.edges]
    for index, node in enumerate(graph.nodes):
        box = _box(node, lines[node.name], layout.boxes[node.name])
        parts.append(f'<a href="#node-{index}">{box}</a>' if links else f"<g>{box}</g>")
    return "\n".join([*parts, "</svg>"])


def escaped(text: str) -> str:
    """Return text for XML, which does not accept most control characters."""
    return html.escape("".join(sign if sign >= " " or sign in "\t\n" else "�" for sign in text))


def _lines(node: Node) -> list[str]:
    settings = [f"{name} {value}" for name, value in node.settings.items()]
    texts = [printable(node.name), node.backends, *settings, *node.changes, *node.statistics]
    return [text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…" for text in texts]


def _box(node: Node, lines: list[str], box: Box) -> str:
    rows = []
    for number, line in enumerate(lines):
        kind = ' class="name"' if number == 0 else ' class="note"' if number > 1 else ""
        y = box.y + PADDING + LINE * (number + 0.75)
        rows.append(f'<text x="{box.x + PADDING:.1f}" y="{y:.1f}"{kind}>{escaped(line)}</text>')
    change = f' class="{node.change}"' if node.change else ""
    name = printable(node.name) + (f" ({node.change})" if node.change else "")
    tip = "\n".join([name, *node.details])
    return (
        f"<title>{escaped(tip)}</title>"
        f'<rect{change} x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="6"/>'
        + "".join(rows)
    )


def _edge(edge: Edge, layout: Layout) -> str:
    source, target = layout.boxes[edge.source], layout.boxes[edge.target]
    x, y = source.x + source.width, source.middle
    path = f"M{x:.1f} {y:.1f}"
    for box in layout.passed[edge.source, edge.target]:
        path += _curve(x, y, box.x, box.middle) + f"H{box.x + box.width:.1f}"
        x, y = box.x + box.width, box.middle
    path += _curve(x, y, target.x, target.middle)
    kinds = " ".join(name for name in ("only-map" if edge.only_map else "", edge.change) if name)
    kind = f' class="{kinds}"' if kinds else ""
    text = "".join(
        f'<text class="note" text-anchor="end" x="{target.x - 14:.1f}" '
        f'y="{target.middle - 6 - LINE * (len(edge.labels) - 1 - number):.1f}">{escaped(label[:MAX_CHARACTERS])}</text>'
        for number, label in enumerate(edge.labels)
    )
    return f'<path{kind} d="{path}" marker-end="url(#hami-arrow)"/>{text}'


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    middle = (x + to_x) / 2
    return f"C{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
