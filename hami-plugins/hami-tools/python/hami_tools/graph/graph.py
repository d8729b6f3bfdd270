"""Graph: the nodes and edges of a pipe with what a picture says about them, independent of the format."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hami import ConfigError
from hami.cli import did_you_mean

from hami_tools.graph.labels import (
    backend_lines,
    edge_labels,
    names_of,
    operators_of,
    settings_of,
    size_label,
    statistics_of,
)

if TYPE_CHECKING:
    from hami import Pipe
    from hami.observe.description import NodeDescription, PipeDescription
    from hami.observe.node_stats import NodeStats

FORMATS = ("text", "mermaid", "dot", "svg", "html")


@dataclass(frozen=True)
class Node:
    """A node as pictures show it."""

    name: str
    backends: str
    """The names of its backends, such as `S[DecodeMat,ResizeMat]`."""
    details: tuple[str, ...]
    """One line for each backend with its parameters, indented by its brackets."""
    settings: dict[str, str]
    """Settings of its scheduling, such as `max`, that say something about it."""
    statistics: tuple[str, ...] = ()
    """Lines of live numbers; empty without statistics."""
    change: str = ""
    """In a comparison: `added`, `removed` or `changed`."""
    changes: tuple[str, ...] = ()
    """In a comparison: what changed, one line each."""


@dataclass(frozen=True)
class Edge:
    """An edge with the keys that it maps."""

    source: str
    target: str
    labels: tuple[str, ...] = ()
    only_map: bool = False
    """Whether `map` uses the result of a node that is not a predecessor by `next`."""
    change: str = ""


@dataclass(frozen=True)
class Graph:
    """The nodes and edges of a pipe, as a picture or text.

    >>> pipe = hami.pipe({"a": {"backend": "Identity", "next": "b"}, "b": {"backend": "Identity"}})
    >>> print(hami_tools.Graph.of(pipe).render("mermaid"))
    flowchart LR
      n0["a<br>Identity"]
      n1["b<br>Identity"]
      n0 --> n1

    Nodes are in the order of the configuration. In a notebook, a `Graph` and a `hami.Pipe` show themselves.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = field(default=())

    @classmethod
    def of(cls, pipe: Pipe) -> Graph:
        """Return the graph of a running or closed pipe, with its statistics if it has run requests.

        >>> hami_tools.Graph.of(hami.pipe("Identity")).nodes[0].backends
        'Identity'

        Args:
            pipe: The pipe.
        """
        return cls.from_description(pipe.describe(), pipe.stats())

    @classmethod
    def from_description(
        cls,
        description: PipeDescription,
        stats: Mapping[str, NodeStats | Mapping[str, Any]] | None = None,
        sizes: Mapping[str, float] | None = None,
    ) -> Graph:
        """Return the graph of what `Pipe.describe` returned, for example in another process.

        >>> pipe = hami.pipe("Identity")
        >>> hami_tools.Graph.from_description(pipe.describe()).nodes[0].name
        'default'

        Args:
            description: The description of a pipe.
            stats: Statistics by the name of the node; None shows no numbers.
            sizes: Mean bytes of the result of each node, shown on its edges.
        """
        nodes = description["nodes"]
        shown = tuple(_node(name, node, (stats or {}).get(name)) for name, node in nodes.items())
        edges = (
            replace(edge, labels=(*edge.labels, size_label((sizes or {})[edge.source])))
            if edge.source in (sizes or {})
            else edge
            for edge in _edges(nodes)
        )
        return cls(shown, tuple(edges))

    @classmethod
    def from_layers(cls, layers: Mapping[str, Any]) -> Graph:
        """Return the graph of a model's layers, as the hook `hami_model_layers` describes them.

        >>> layers = {"nodes": {"input x": [], "stem": ["Conv", "Relu"]}, "edges": [["input x", "stem", "1 x 3"]]}
        >>> print(hami_tools.Graph.from_layers(layers).render())
        input x:
          --> stem  (1 x 3)
        stem: Conv, Relu

        Args:
            layers: Its `nodes` and `edges`.
        """
        nodes = tuple(Node(name, operators_of(operators), (), {}) for name, operators in layers["nodes"].items())
        return cls(
            nodes, tuple(Edge(source, target, (text,) if text else ()) for source, target, text in layers["edges"])
        )

    def render(self, format: str = "text") -> str:
        """Return the graph as text in a format.

        >>> print(hami_tools.Graph.of(hami.pipe("S[Identity,Identity]")).render())
        default: S[Identity,Identity]

        Args:
            format: "text", "mermaid", "dot" (Graphviz), "svg", or "html": a page in one file, which loads nothing.

        Raises:
            ConfigError: The format is unknown.
        """
        if format not in FORMATS:
            raise ConfigError(
                f'unknown format "{format}"{did_you_mean(format, FORMATS)}; the formats are {", ".join(FORMATS)}'
            )
        module = importlib.import_module(f"hami_tools.graph.{format}")
        text: str = module.render(self)
        return text

    def compare(self, other: Graph) -> Graph:
        """Return the graph with what changes from this one to `other`.

        >>> before, after = hami.pipe("Identity"), hami.pipe("S[Identity,Identity]")
        >>> print(hami_tools.Graph.of(before).compare(hami_tools.Graph.of(after)).render())
        ~ default: S[Identity,Identity]
            Identity -> S[Identity,Identity]

        Args:
            other: The graph of the other pipe. Its statistics are shown.
        """
        before = {node.name: node for node in self.nodes}
        nodes = [_compared(before.pop(node.name, None), node) for node in other.nodes]
        nodes += [replace(node, change="removed", statistics=()) for node in before.values()]
        old = {(edge.source, edge.target): edge for edge in self.edges}
        edges = []
        for edge in other.edges:
            was = old.pop((edge.source, edge.target), None)
            change = "added" if was is None else "" if was == edge else "changed"
            edges.append(replace(edge, change=change))
        edges += [replace(edge, change="removed") for edge in old.values()]
        return Graph(tuple(nodes), tuple(edges))

    @property
    def differs(self) -> bool:
        """Whether a comparison found any change."""
        return any(node.change for node in self.nodes) or any(edge.change for edge in self.edges)

    def _repr_html_(self) -> str:
        return self.render("svg")


def _node(name: str, node: NodeDescription, stats: NodeStats | Mapping[str, Any] | None) -> Node:
    values = stats if stats is None or isinstance(stats, Mapping) else stats.as_dict()
    return Node(
        name,
        names_of(node["backends"]),
        tuple(backend_lines(node["backends"])),
        settings_of(node),
        tuple(statistics_of(values)) if values else (),
    )


def _edges(nodes: Mapping[str, NodeDescription]) -> Iterator[Edge]:
    for source, node in nodes.items():
        for target in node["next"]:
            yield Edge(source, target, edge_labels(source, nodes[target]))
    for target, node in nodes.items():
        for source in dict.fromkeys(entry["node"] for entry in node["map"]):
            if source in nodes and target not in nodes[source]["next"]:
                yield Edge(source, target, edge_labels(source, node), only_map=True)


def _compared(before: Node | None, after: Node) -> Node:
    if before is None:
        return replace(after, change="added")
    changes = []
    if before.backends != after.backends:
        changes.append(f"{before.backends} -> {after.backends}")
    elif before.details != after.details:
        old, new = set(before.details), set(after.details)
        changes += [f"- {line.strip()}" for line in before.details if line not in new]
        changes += [f"+ {line.strip()}" for line in after.details if line not in old]
    for name in sorted({*before.settings, *after.settings}):
        was, now = before.settings.get(name, "default"), after.settings.get(name, "default")
        if was != now:
            changes.append(f"{name}: {was} -> {now}")
    return replace(after, change="changed", changes=tuple(changes)) if changes else after
