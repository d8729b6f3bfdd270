"""A graph as a Mermaid flowchart, which Markdown on many sites shows as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hami.cli import printable

if TYPE_CHECKING:
    from hami_tools.graph.graph import Graph

STYLES = {
    "added": "stroke:#1a7f37,stroke-width:3px",
    "removed": "stroke:#cf222e,stroke-width:3px,stroke-dasharray:4",
    "changed": "stroke:#9a6700,stroke-width:3px",
}


def render(graph: Graph) -> str:
    """Return a flowchart from left to right. Nodes have the ids n0, n1, …: names may contain any character."""
    ids = {node.name: f"n{index}" for index, node in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    for node in graph.nodes:
        settings = [f"{name} {value}" for name, value in node.settings.items()]
        label = [printable(node.name), node.backends, *settings, *node.changes, *node.statistics]
        text = "<br>".join(map(_escaped, label))
        lines.append(f'  {ids[node.name]}["{text}"]')
    for edge in graph.edges:
        arrow = "-.->" if edge.only_map or edge.change == "removed" else "-->"
        text = "<br>".join(map(_escaped, edge.labels))
        mapped = f'|"{text}"|' if text else ""
        lines.append(f"  {ids[edge.source]} {arrow}{mapped} {ids[edge.target]}")
    for change, style in STYLES.items():
        if changed := [ids[node.name] for node in graph.nodes if node.change == change]:
            lines += [f"  classDef {change} {style}", f"  class {','.join(changed)} {change}"]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Return text in which no character has a meaning for Mermaid or HTML."""
    return "".join(f"#{ord(sign)};" if sign in '"#&<>`;{}|\\' else sign for sign in text.replace("->", "→"))
