"""HAMi: pipelines as expressions, run in this process by a C++ core; backends come from plugin wheels."""

try:
    from hami import _core as _core
except ImportError as error:
    if isinstance(error.__cause__, KeyboardInterrupt):  # while the binary was initialised
        raise error.__cause__ from None
    from hami._no_core import explain

    raise ImportError(explain(error)) from error

from hami._backends.base import Alias, Backend, ByteSize, Duration, FilePath, Key
from hami._backends.registration import generate, register
from hami._core import (
    BackendHandle,
    DictView,
    Event,
    Opaque,
    Queue,
    Request,
    RequestStore,
    Tensor,
    __version__,
    scatter,
    scattered,
)
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
from hami._plugins.native import get_include, register_plugin
from hami._runtime.libraries import allow_library, check_library
from hami._runtime.pipe import Pipe, pipe
from hami._runtime.tensors import to_like, to_numpy
from hami._runtime.typed_dict import TypedDict
from hami._to_json import to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hami import observe as observe
    from hami._runtime.device import Device

__all__ = [
    "Alias",
    "AlreadyExists",
    "Backend",
    "BackendExit",
    "BackendHandle",
    "BackendNotFound",
    "BatchError",
    "ByteSize",
    "ConfigError",
    "DataTypeError",
    "DeadlineExceeded",
    "Device",
    "DictView",
    "Duration",
    "Error",
    "Event",
    "FilePath",
    "Key",
    "NoResult",
    "NotFound",
    "Opaque",
    "OutOfRange",
    "Pipe",
    "PipeClosed",
    "PluginError",
    "Queue",
    "QueueFull",
    "ReentrantCall",
    "Request",
    "RequestError",
    "RequestStore",
    "Tensor",
    "TypedDict",
    "__version__",
    "allow_library",
    "backends",
    "check_library",
    "generate",
    "get_include",
    "pipe",
    "plugins",
    "register",
    "register_plugin",
    "scatter",
    "scattered",
    "to_json",
    "to_like",
    "to_numpy",
]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name):
        """Import what few programs use."""
        if name == "Device":
            from hami._runtime.device import Device

            return Device
        if name == "observe":
            import importlib

            return importlib.import_module("hami.observe")
        raise AttributeError(f"module 'hami' has no attribute {name!r}")
