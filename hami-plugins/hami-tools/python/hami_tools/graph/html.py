"""A graph as a web page in one file: the picture, and a section for each node. It loads nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hami.cli import printable

from hami_tools.graph.svg import escaped
from hami_tools.graph.svg import render as picture

if TYPE_CHECKING:
    from hami_tools.graph.graph import Graph, Node

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem; overflow-wrap: anywhere; }
body { color: #1f2328; background: #ffffff; }
figure { margin: 0; overflow-x: auto; }
pre { overflow-x: auto; }
section:target { outline: 3px solid #0550ae; outline-offset: 6px; }
@media (prefers-color-scheme: dark) {
  body { color: #e6edf3; background: #0d1117; }
  section:target { outline-color: #79c0ff; }
}
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(graph: Graph) -> str:
    """Return the page. The nodes of the picture are links, which the Tab key reaches."""
    sections = "\n".join(_section(graph, index, node) for index, node in enumerate(graph.nodes))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width">
<title>Pipeline</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Pipeline</h1>
<figure tabindex="0" aria-label="Picture of the pipeline">
{picture(graph, links=True)}
</figure>
{sections}
</body>
</html>"""


def _section(graph: Graph, index: int, node: Node) -> str:
    facts = [f"{name} = {value}" for name, value in node.settings.items()]
    facts += [*node.changes, *node.statistics]
    for edge in graph.edges:
        if edge.source == node.name:
            facts.append(f"next: {printable(edge.target)} {', '.join(edge.labels)}".rstrip())
    items = "".join(f"<li>{escaped(fact)}</li>" for fact in facts)
    change = f" ({node.change})" if node.change else ""
    listed = f"<ul>{items}</ul>" if items else ""
    details = escaped("\n".join(node.details))
    return (
        f'<section id="node-{index}">\n<h2>{escaped(printable(node.name))}{change}</h2>\n'
        f"<pre>{details}</pre>\n{listed}\n</section>"
    )
