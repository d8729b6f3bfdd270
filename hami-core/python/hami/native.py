"""Native code: libraries that configurations may load, plugins without a wheel, and the files to build one."""

from __future__ import annotations

import os

from hami import _core
from hami._errors import PluginError
from hami._plugins.plugin import Incompatible, load_library
from hami._text import printable

__all__ = [
    "allow_library",
    "caller",
    "check_library",
    "functions",
    "get_include",
    "register_plugin",
    "uses_python",
    "value_of",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hami._runtime.pipe import Pipe

_PACKAGE = os.path.dirname(__file__)


def allow_library(path: os.PathLike[str] | str) -> None:
    """Allow configurations of this process to load a file with native code, or any file in a folder.

    >>> hami.native.allow_library("/opt/acme/lib")
    >>> hami.native.check_library("/opt/acme/lib/libengine.so", "library of Engine")

    The environment variable HAMI_ALLOWED_LIBRARIES, files and folders separated by `:`, does the same for a program.

    Args:
        path: A file, a folder, or a name without a slash that the system's loader searches for.
    """
    _core.allow_library(os.fsencode(path))


def check_library(path: os.PathLike[str] | str, what: str) -> None:
    """Check that a configuration may load a file with native code; for backends in Python.

    >>> hami.native.check_library("beside/the/configuration.so", "library of Engine")
    Traceback (most recent call last):
    hami.ConfigError: library of Engine loads native code, which a configuration may do only from allowed files; …

    A native backend declares a parameter of the type `library` instead, which the core checks. Symbolic links and `..`
    are resolved before paths are compared.

    Args:
        path: The file, as configured.
        what: The parameter and its backend, for the message.

    Raises:
        ConfigError: The file is not allowed.
    """
    _core.check_library(os.fsencode(path), what)


def register_plugin(path: os.PathLike[str] | str, /) -> list[str]:
    """Register the backends of a native plugin's library in this process.

    >>> hami.native.register_plugin("build/libacme.so")
    Traceback (most recent call last):
    hami.PluginError: build/libacme.so: cannot open shared object file: No such file or directory

    A plugin that is installed as a wheel needs no such call.

    Args:
        path: The path of the shared library.

    Returns:
        The names of the backends.

    Raises:
        PluginError: The file is not a plugin, or needs another version of hami-core.
    """
    try:
        library = load_library(path, "")
    except Incompatible as error:
        raise PluginError(f'the plugin "{printable(path)}" {error}') from None
    for handle in library.classes:
        _core.define(handle)
    return [handle.name for handle in library.classes]


def caller(pipe: Pipe, /) -> object:
    """Return a capsule by which native code calls a pipe, without Python and its GIL.

    >>> with hami.pipe("Identity") as pipe:
    ...     type(hami.native.caller(pipe)).__name__
    'PyCapsule'

    Its pointer is a `hami_caller`, which the header hami/caller.h describes: the threads of a server start requests
    with it, and cancel them. The capsule keeps neither the pipe nor its backends alive: requests of a closed pipe fail.
    After `pipe.replace` they go to the new backends.

    Args:
        pipe: The pipe.

    Returns:
        A `PyCapsule` named "hami.caller.v1".
    """
    return pipe._core.native_caller()


def functions(backend: str, /, **types: type) -> Any:
    """Return the functions of a plugin's native library, for its Python code to call with ctypes.

    >>> import ctypes
    >>> hami.native.functions("Identity", add=ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64))
    Traceback (most recent call last):
    hami.PluginError: the native library of Identity does not match its Python code: …

    The library registers the backend with the header hami/function_table.hpp.

    Args:
        backend: The name of the table's backend, with its plugin: "hami-acme::AcmeFunctions".
        types: The type of each function, a `ctypes.CFUNCTYPE`, by its name, in the order of the table.

    Returns:
        An object with the functions as attributes.

    Raises:
        PluginError: The library was built from other sources than the Python code, so their tables differ.
    """
    import ctypes
    from types import SimpleNamespace

    from hami._runtime.pipe import pipe

    class Table(ctypes.Structure):
        _fields_ = tuple(types.items())

    with pipe(backend) as given:
        found = given({"data": None})
    if found.get("size") != ctypes.sizeof(Table):
        owner = backend.partition("::")[0]
        raise PluginError(
            f"the native library of {owner} does not match its Python code: {backend} must return a table of "
            f"{ctypes.sizeof(Table)} bytes for {len(types)} functions, got {found.get('size', 'no size')}; "
            f"install {owner} again, or rebuild it in its checkout"
        )
    read = Table.from_address(found["result"])
    return SimpleNamespace(**{name: getattr(read, name) for name in types})


def load_pipe(pipe: Pipe, requests: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    """Call a pipe from several threads of the core, which need no GIL, and return what was measured.

    A closed loop has `clients`, `warmup` and `calls` or `seconds`; an open loop has `arrivals`. `seed` makes the choice
    of requests repeatable.
    """
    return pipe._core.load(requests, **options)


def get_include() -> str:
    """Return the folder with the headers for native plugins, such as hami/abi.h.

    >>> import os.path
    >>> os.path.basename(hami.native.get_include())
    'include'
    """
    return os.path.join(_PACKAGE, "include")


def cmake_dir() -> str:
    """Return the folder that CMake's find_package(hami) needs as hami_DIR."""
    return os.path.join(_PACKAGE, "cmake")


def uses_python(pipe: Pipe, /) -> bool:
    """Return whether a backend of a pipe is one in Python, so that its requests hold the GIL.

    >>> with hami.pipe("Identity") as pipe:
    ...     hami.native.uses_python(pipe)
    False

    Args:
        pipe: The pipe.
    """
    return pipe._core.uses_python()


def value_of(address: int, /) -> Any:
    """Return the object that a pipe's caller would get for a value of native code.

    >>> import ctypes
    >>> seven = (ctypes.c_int64 * 2)(2, 7)  # a hami_value of kind HAMI_INT
    >>> hami.native.value_of(ctypes.addressof(seven))
    7

    Native code that starts requests (see `caller`) passes on to Python what it does not read itself: a result of any
    kind, or an error, as an event that has failed.

    Args:
        address: That of a `hami_value`, as hami/abi.h describes it; it is borrowed for the call.

    Raises:
        ValueError: The kind of the value and its object do not match.
    """
    return _core.value_of(address)
