"""A graph as indented text, for terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hami.cli import printable

if TYPE_CHECKING:
    from hami_tools.graph.graph import Graph, Node

SIGNS = {"": "  ", "added": "+ ", "removed": "- ", "changed": "~ "}


def render(graph: Graph) -> str:
    """Return one block for each node: its backends, settings, numbers and edges."""
    lines: list[str] = []
    for node in graph.nodes:
        lines += _block(graph, node, compared=graph.differs)
    return "\n".join(lines)


def _block(graph: Graph, node: Node, *, compared: bool) -> list[str]:
    sign, indent = (SIGNS[node.change], "    ") if compared else ("", "  ")
    lines = [f"{sign}{printable(node.name)}: {node.backends}".rstrip()]
    lines += [f"{indent}{line}" for line in node.changes]
    if node.settings and not node.changes:
        lines.append(indent + ", ".join(f"{name} {value}" for name, value in node.settings.items()))
    lines += [f"{indent}{line}" for line in node.statistics]
    for edge in graph.edges:
        if edge.source == node.name:
            mapped = f"  ({', '.join(edge.labels)})" if edge.labels else ""
            arrow = "..>" if edge.only_map else "-->"
            mark = SIGNS[edge.change] if edge.change else ""
            lines.append(f"{indent}{mark}{arrow} {printable(edge.target)}{mapped}")
    return lines
