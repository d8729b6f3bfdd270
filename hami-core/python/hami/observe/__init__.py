"""See what a running pipe does: the typed statistics of its nodes."""

from hami.observe.node_stats import NodeStats

__all__ = ["NodeStats"]
