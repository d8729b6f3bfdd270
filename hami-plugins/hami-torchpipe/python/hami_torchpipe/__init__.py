"""Programs of torchpipe and omniback, run by HAMi: `import hami_torchpipe as torchpipe`."""

from hami import Backend, Event, Pipe, Queue, to_like, to_numpy
from hami import RequestStore as KVStorage

from hami_torchpipe.programs import Created, Dict, create, default_queue, get, init, parse, pipe, register

__all__ = [
    "Backend",
    "Created",
    "Dict",
    "Event",
    "KVStorage",
    "Pipe",
    "Queue",
    "create",
    "default_queue",
    "get",
    "init",
    "parse",
    "pipe",
    "register",
    "to_like",
    "to_numpy",
]
