"""HAMi: pipelines as expressions, run in this process by a C++ core; backends come from plugin wheels."""

try:
    from hami import _core as _core
except ImportError as error:
    if isinstance(error.__cause__, KeyboardInterrupt):  # while the binary was initialised
        raise error.__cause__ from None
    from hami._no_core import explain

    raise ImportError(explain(error)) from error

from hami._backends.base import Backend
from hami._backends.registration import generate, register
from hami._core import Event, Queue, Request, Tensor, __version__
from hami._errors import (
    AlreadyExists,
    BackendExit,
    BackendNotFound,
    BatchError,
    ConfigError,
    DataTypeError,
    DeadlineExceeded,
    Error,
    NoResult,
    NotFound,
    OutOfRange,
    PipeClosed,
    PluginError,
    QueueFull,
    ReentrantCall,
    RequestError,
)
from hami._plugins.lookup import backends, plugins
from hami._runtime.pipe import Pipe, pipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hami import batching as batching
    from hami import native as native
    from hami import observe as observe
    from hami import types as types
    from hami._runtime.tensors import to_like, to_numpy
    from hami._to_json import to_json

__all__ = [
    "AlreadyExists",
    "Backend",
    "BackendExit",
    "BackendNotFound",
    "BatchError",
    "ConfigError",
    "DataTypeError",
    "DeadlineExceeded",
    "Error",
    "Event",
    "NoResult",
    "NotFound",
    "OutOfRange",
    "Pipe",
    "PipeClosed",
    "PluginError",
    "Queue",
    "QueueFull",
    "ReentrantCall",
    "Request",
    "RequestError",
    "Tensor",
    "__version__",
    "backends",
    "generate",
    "pipe",
    "plugins",
    "register",
    "to_json",
    "to_like",
    "to_numpy",
]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:
    _LATE = {"to_json": "hami._to_json", "to_like": "hami._runtime.tensors", "to_numpy": "hami._runtime.tensors"}

    def __getattr__(name):
        """Import on first use: the public modules, and functions that the import of hami does not need."""
        import importlib

        if name in ("batching", "native", "observe", "types"):
            return importlib.import_module(f"hami.{name}")
        if name in _LATE:
            globals()[name] = getattr(importlib.import_module(_LATE[name]), name)
            return globals()[name]
        raise AttributeError(f"module 'hami' has no attribute {name!r}")
