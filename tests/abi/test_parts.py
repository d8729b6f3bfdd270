"""item_emit: a native backend delivers parts of its result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import hami
from conftest import HERE, Toolchain

Build = Callable[..., Path]


def test_a_native_backend_delivers_parts(toolchain: Toolchain, build: Build) -> None:
    """To a caller that takes them; other callers get the result."""
    hami.native.register_plugin(build(toolchain, HERE / "plugins" / "parts.cpp"))
    with hami.pipe(f"{toolchain.prefix}EmitNumbers") as pipe:
        request = {"data": 100}
        assert list(pipe.stream(request)) == list(range(100))
        assert request == {"data": 100, "result": True}
        assert pipe({"data": 2})["result"] is False
        endless = pipe.stream({"data": 1 << 60})
        assert next(endless) == 0
        endless.close()  # cancels it: the next request does not wait for it
        assert pipe({"data": 0})["result"] is True
