"""Pictures of a pipe: `Graph` and the formats that it renders."""

from hami.observe.graph.graph import FORMATS, Graph

__all__ = ["FORMATS", "Graph"]
