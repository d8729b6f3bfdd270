"""Statistics, metrics and spans of a running pipe.

>>> with hami.pipe("Identity") as pipe:
...     isinstance(pipe.stats()["default"], hami.observe.NodeStats)
True
"""

from hami._core import status, trace_slice
from hami.observe.histogram import Histogram
from hami.observe.node_stats import LaneStats, NodePolicy, NodeStats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hami._runtime.spans import opentelemetry
    from hami.observe.description import BackendDescription, NodeDescription, PartDescription, PipeDescription
    from hami.observe.metrics import prometheus
    from hami.observe.request_times import RequestTimes
    from hami.observe.secrets import redact
    from hami.observe.trace import Trace

__all__ = [
    "BackendDescription",
    "Histogram",
    "LaneStats",
    "NodeDescription",
    "NodePolicy",
    "NodeStats",
    "PartDescription",
    "PipeDescription",
    "RequestTimes",
    "Trace",
    "opentelemetry",
    "prometheus",
    "redact",
    "status",
    "trace_slice",
]

# Loaded when they are used, because every program imports this package.
_MODULES = {
    "BackendDescription": "hami.observe.description",
    "NodeDescription": "hami.observe.description",
    "PartDescription": "hami.observe.description",
    "PipeDescription": "hami.observe.description",
    "RequestTimes": "hami.observe.request_times",
    "Trace": "hami.observe.trace",
    "opentelemetry": "hami._runtime.spans",
    "prometheus": "hami.observe.metrics",
    "redact": "hami.observe.secrets",
}


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name):
        """Import the module of a public name when the name is used."""
        if name not in _MODULES:
            raise AttributeError(f"module 'hami.observe' has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(_MODULES[name]), name)
