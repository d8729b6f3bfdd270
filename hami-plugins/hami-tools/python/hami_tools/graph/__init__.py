"""Pictures of a pipe: `Graph` and the formats that it renders."""

from hami_tools.graph.graph import FORMATS, Graph

__all__ = ["FORMATS", "Graph"]
