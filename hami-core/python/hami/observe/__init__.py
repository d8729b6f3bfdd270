"""Statistics and pictures of a running pipe.

>>> with hami.pipe("Identity") as pipe:
...     isinstance(pipe.stats()["default"], hami.observe.NodeStats)
True
"""

from hami.observe.histogram import Histogram
from hami.observe.lane_stats import LaneStats
from hami.observe.node_stats import NodeStats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hami.observe.description import BackendDescription, NodeDescription, PartDescription, PipeDescription
    from hami.observe.graph import Graph
    from hami.observe.metrics import prometheus
    from hami.observe.secrets import redact
    from hami.observe.spans import opentelemetry
    from hami.observe.throughput import ThroughputBenchmark, ThroughputResult
    from hami.observe.trace import Trace
    from hami.observe.user_code import timers

__all__ = [
    "BackendDescription",
    "Graph",
    "Histogram",
    "LaneStats",
    "NodeDescription",
    "NodeStats",
    "PartDescription",
    "PipeDescription",
    "ThroughputBenchmark",
    "ThroughputResult",
    "Trace",
    "opentelemetry",
    "prometheus",
    "redact",
    "timers",
]

# Loaded when they are used, because every program imports this package.
_MODULES = {
    "BackendDescription": "description",
    "Graph": "graph",
    "NodeDescription": "description",
    "PartDescription": "description",
    "PipeDescription": "description",
    "ThroughputBenchmark": "throughput",
    "ThroughputResult": "throughput",
    "Trace": "trace",
    "opentelemetry": "spans",
    "prometheus": "metrics",
    "redact": "secrets",
    "timers": "user_code",
}


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name):
        """Import the module of a public name when the name is used."""
        if name not in _MODULES:
            raise AttributeError(f"module 'hami.observe' has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(f"hami.observe.{_MODULES[name]}"), name)
