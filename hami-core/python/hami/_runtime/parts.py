"""Implements `Pipe.stream` and `Pipe.astream`: the parts of a result, while the request runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from os import getpid
from typing import Any

from hami import _core
from hami._errors import Error
from hami._runtime.calls import not_a_dict
from hami._runtime.future import RequestFuture, submit


def stream(
    core: _core.Pipe, request: dict[str, Any], timeout: float | None, priority: int | None, buffer: int
) -> Iterator[Any]:
    """Return an iterator that starts the request, yields its parts, and cancels it when the iteration ends early."""
    if not isinstance(request, dict):
        raise not_a_dict(request, "stream")
    return _stream(core, request, timeout, priority, buffer)


def _stream(
    core: _core.Pipe, request: dict[str, Any], timeout: float | None, priority: int | None, buffer: int
) -> Iterator[Any]:
    parts = _core.Queue(buffer, name="parts")
    own = {**request, "parts": parts}
    process = getpid()
    future = submit(core, own, timeout, priority)
    try:
        while arrived := parts._take_all():
            yield from arrived
            if getpid() != process:  # the parts come to the parent alone
                raise Error("this stream was begun before the process forked; begin a new one in the child")
        _finish(future, own, request)
    finally:
        if getpid() == process:
            future.cancel()


def astream(
    core: _core.Pipe, request: dict[str, Any], timeout: float | None, priority: int | None, buffer: int
) -> AsyncGenerator[Any, None]:
    """As `stream`, for a task of an asyncio loop."""
    if not isinstance(request, dict):
        raise not_a_dict(request, "astream")
    return _astream(core, request, timeout, priority, buffer)


async def _astream(
    core: _core.Pipe, request: dict[str, Any], timeout: float | None, priority: int | None, buffer: int
) -> AsyncGenerator[Any, None]:
    import asyncio

    parts = _core.Queue(buffer, name="parts")
    own = {**request, "parts": parts}
    future = submit(core, own, timeout, priority, may_wait=False)
    try:
        while True:
            await parts._readable()
            arrived = parts._take_all()
            if not arrived:
                break
            for part in arrived:
                yield part
        await asyncio.wrap_future(future)
        _finish(future, own, request)
    finally:
        future.cancel()


def _finish(future: RequestFuture, own: dict[str, Any], request: dict[str, Any]) -> None:
    """Raise the error of the request, or give its keys to the caller's dict."""
    future.result()
    del own["parts"]
    request.update(own)
