"""The public functions for native plugins, and the folders with the files to build one."""

from __future__ import annotations

import os

from hami._errors import PluginError

_PACKAGE = os.path.dirname(os.path.dirname(__file__))


def register_plugin(path: os.PathLike[str] | str, /) -> list[str]:
    """Register the backends of a native plugin's library in this process.

    >>> hami.register_plugin("build/libacme.so")
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
    from hami import _core
    from hami._plugins.native_loading import Incompatible, load
    from hami._text import printable

    try:
        library = load(path, "")
    except Incompatible as error:
        raise PluginError(f'the plugin "{printable(path)}" {error}') from None
    for handle in library.classes:
        _core.define(handle)
    return [handle.name for handle in library.classes]


def get_include() -> str:
    """Return the folder with the headers for native plugins, such as hami/abi.h.

    >>> import os.path
    >>> os.path.basename(hami.get_include())
    'include'
    """
    return os.path.join(_PACKAGE, "include")


def cmake_dir() -> str:
    """Return the folder that CMake's find_package(hami) needs as hami_DIR."""
    return os.path.join(_PACKAGE, "cmake")
