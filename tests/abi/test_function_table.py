"""Python code of a plugin calls functions of its native library by hami/function_table.hpp."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import hami
import pytest
from conftest import HERE, Toolchain

SOURCE = HERE / "plugins" / "function_table.cpp"
TYPES = {
    "add": ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64),
    "half": ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double),
}


def register(toolchain: Toolchain, build: Callable[..., Path], name: str, *defines: str) -> str:
    (backend,) = hami.native.register_plugin(build(toolchain, SOURCE, "-UPREFIX", f"-DPREFIX={name}", *defines))
    return backend


def test_functions_are_called_by_name(toolchain: Toolchain, build: Callable[..., Path]) -> None:
    found = hami.native.functions(register(toolchain, build, f"New{toolchain.prefix}"), **TYPES)
    assert (found.add(40, 2), found.half(3.0)) == (42, 1.5)


def test_a_library_that_lacks_a_function_is_rejected(toolchain: Toolchain, build: Callable[..., Path]) -> None:
    backend = register(toolchain, build, f"Old{toolchain.prefix}", "-DBEFORE")
    with pytest.raises(hami.PluginError, match="a table of 16 bytes for 2 functions, got 8; install"):
        hami.native.functions(backend, **TYPES)


def test_a_library_that_reports_no_size_is_rejected() -> None:
    with pytest.raises(hami.PluginError, match="must return a table of 16 bytes for 2 functions, got no size; install"):
        hami.native.functions("Identity", **TYPES)
