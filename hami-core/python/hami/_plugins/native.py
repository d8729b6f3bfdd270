"""Native plugins: one's library made known by its path, and where the files to build one with lie."""

from __future__ import annotations

import os

from hami._errors import PluginError


def register_plugin(path: os.PathLike[str] | str, /) -> list[str]:
    """Make the backends of a native plugin's library known in this process; return their names.

        hami.register_plugin("build/libacme.so")

    A plugin that is installed as a wheel is found without this. Raises PluginError if the library is not a plugin, or
    needs another version of hami-core.
    """
    from hami import _core
    from hami._plugins.native_loading import Refused, load, shown

    try:
        library = load(path, "")
    except Refused as error:
        raise PluginError(f'the plugin "{shown(path)}" {error}') from None
    for handle in library.classes:
        _core.define(handle)
    return [handle.name for handle in library.classes]


def get_include() -> str:
    """Return the folder with hami/abi.h and hami/backend.hpp, to build native plugins with."""
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), "include")


def cmake_dir() -> str:
    """Return the folder that CMake's find_package(hami) needs as hami_DIR."""
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), "cmake")
