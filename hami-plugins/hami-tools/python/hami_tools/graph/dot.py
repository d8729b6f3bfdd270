"""A graph in the DOT language of Graphviz."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hami.cli import printable

if TYPE_CHECKING:
    from hami_tools.graph.graph import Graph

COLORS = {"": "", "added": "#1a7f37", "removed": "#cf222e", "changed": "#9a6700"}


def render(graph: Graph) -> str:
    """Return a directed graph from left to right."""
    ids = {node.name: f"n{index}" for index, node in enumerate(graph.nodes)}
    lines = ["digraph pipe {", "  rankdir=LR;", '  node [shape=box, fontname="sans-serif"];']
    for node in graph.nodes:
        settings = [f"{name} {value}" for name, value in node.settings.items()]
        label = [printable(node.name), node.backends, *settings, *node.changes, *node.statistics]
        lines.append(f"  {ids[node.name]} [label={_quoted(label)}{_color(node.change)}];")
    for edge in graph.edges:
        style = ", style=dashed" if edge.only_map or edge.change == "removed" else ""
        lines.append(
            f"  {ids[edge.source]} -> {ids[edge.target]} [label={_quoted(edge.labels)}{style}{_color(edge.change)}];"
        )
    return "\n".join([*lines, "}"])


def _quoted(lines: tuple[str, ...] | list[str]) -> str:
    escaped = "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return f'"{escaped}"'


def _color(change: str) -> str:
    return f', color="{COLORS[change]}", penwidth=2' if change else ""
