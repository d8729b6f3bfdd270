"""HAMi: pipelines as expressions, run in this process by a C++ core; backends come from plugin wheels."""

from hami._backend import Backend, ByteSize, Duration, generate, register
from hami._core import __version__
from hami._errors import (
    AlreadyExists,
    BackendNotFound,
    BatchError,
    ConfigError,
    DataTypeError,
    DeadlineExceeded,
    Error,
    NoResult,
    NotFound,
    PipeClosed,
    PluginError,
    QueueFull,
    ReentrantCall,
    RequestError,
)
from hami._pipe import Pipe, backends, pipe, plugins

__all__ = [
    "AlreadyExists",
    "Backend",
    "BackendNotFound",
    "BatchError",
    "ByteSize",
    "ConfigError",
    "DataTypeError",
    "DeadlineExceeded",
    "Duration",
    "Error",
    "NoResult",
    "NotFound",
    "Pipe",
    "PipeClosed",
    "PluginError",
    "QueueFull",
    "ReentrantCall",
    "RequestError",
    "__version__",
    "backends",
    "generate",
    "pipe",
    "plugins",
    "register",
]
