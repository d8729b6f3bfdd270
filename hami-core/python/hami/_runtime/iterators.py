"""Implements the calls of `Pipe` for several requests, or the parts of one: `map`, `stream`, `astream`, `warmup`."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from os import getpid
from time import perf_counter
from typing import Any, TypeVar

from hami import _core
from hami._errors import BatchError, ConfigError, DataTypeError, Error
from hami._runtime.calls import require_dict
from hami._runtime.future import RequestFuture, submit
from hami.observe.description import PipeDescription

Item = TypeVar("Item")
Started = Future[dict[str, Any]]


def started_in_order(
    items: Iterable[Item], start: Callable[[Item], Started], concurrency: int
) -> Generator[tuple[Item, Started], None, None]:
    """Start items, several at a time, and yield them in order with their futures; the next starts when one is done.

    When the iteration ends, the futures that are left are cancelled: closing a pipe does not wait for their requests.
    """
    running: deque[tuple[Item, Started]] = deque()
    try:
        for item in items:
            running.append((item, start(item)))
            if len(running) == concurrency:
                yield running[0]
                running.popleft()
        while running:
            yield running[0]
            running.popleft()
    finally:
        for _, future in running:
            future.cancel()


def ordered_map(
    begin: Callable[[dict[str, Any]], Started], requests: Iterable[dict[str, Any]], concurrency: int
) -> Iterator[dict[str, Any]]:
    """Yield each completed request in order; cancel the outstanding requests when the iteration ends."""
    running: set[int] = set()  # a dict that ran twice at a time could have either result

    def start(request: dict[str, Any]) -> Started:
        if id(request) in running:
            raise DataTypeError(
                "the same dict was passed again while its request is running; pass a separate dict for each request"
            )
        running.add(id(request))
        return begin(request)

    with closing(started_in_order(requests, start, concurrency)) as started:
        for request, future in started:
            result = future.result()
            running.remove(id(request))
            yield result


def stream(
    core: _core.Pipe, request: dict[str, Any], timeout: float | None, priority: int | None, buffer: int
) -> Iterator[Any]:
    """Return an iterator that starts the request, yields its parts, and cancels it when the iteration ends early."""
    require_dict(request, "stream")
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
    require_dict(request, "astream")
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


def warm_up(
    pipe: Callable[[list[dict[str, Any]]], object],
    description: PipeDescription,
    request: dict[str, Any],
    n: int,
    sizes: Iterable[int] | None,
) -> dict[int, float]:
    """Run `n` batches of copies of the request for each size; return the seconds of the last one, by size."""
    if n < 1:
        raise ConfigError(f"n must be at least 1, got {n}")
    took: dict[int, float] = {}
    for size in sorted({1, _largest_batch(description)} if sizes is None else set(sizes)):
        if size < 1:
            raise ConfigError(f"a size must be at least 1, got {size}")
        for _ in range(n):
            started = perf_counter()
            failed: BaseException | None = None
            try:
                pipe([dict(request) for _ in range(size)])
            except BatchError as error:
                failed = error.errors[0][1]
            if failed is not None:
                raise failed  # here, where it keeps its cause and gets no context
            took[size] = perf_counter() - started
    return took


def _largest_batch(description: PipeDescription) -> int:
    """Return the largest `max` of the nodes; nodes without a number do not count."""
    limits = (node["batching"].get("max") for node in description["nodes"].values())
    return max([1, *(limit for limit in limits if isinstance(limit, int))])
