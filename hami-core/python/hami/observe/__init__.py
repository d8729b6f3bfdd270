"""Statistics of a running pipe.

>>> with hami.pipe("Identity") as pipe:
...     isinstance(pipe.stats()["default"], hami.observe.NodeStats)
True
"""

from hami.observe.node_stats import NodeStats

__all__ = ["NodeStats"]
