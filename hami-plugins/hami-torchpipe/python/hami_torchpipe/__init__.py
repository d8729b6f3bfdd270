"""Programs of torchpipe and omniback, run by HAMi: `import hami_torchpipe as torchpipe`."""

from hami import Backend, Event, Pipe, Queue, to_like, to_numpy
from hami.types import RequestStore as KVStorage

from hami_torchpipe.importing import Imported, import_torchpipe
from hami_torchpipe.programs import Created, Dict, create, default_queue, get, get_include, init, parse, pipe, register
from hami_torchpipe.typed_dict import TypedDict

__all__ = [
    "Backend",
    "Created",
    "Dict",
    "Event",
    "Imported",
    "KVStorage",
    "Pipe",
    "Queue",
    "TypedDict",
    "create",
    "default_queue",
    "get",
    "get_include",
    "import_torchpipe",
    "init",
    "parse",
    "pipe",
    "register",
    "to_like",
    "to_numpy",
]
