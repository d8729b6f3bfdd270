"""Runs several requests at a time, with their results in the order of the requests: for `Pipe.map` and `hami run`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from typing import Any, TypeVar

from hami._errors import DataTypeError

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
    submit: Callable[[dict[str, Any]], Started], requests: Iterable[dict[str, Any]], concurrency: int
) -> Iterator[dict[str, Any]]:
    """Yield each completed request in order; cancel the outstanding requests when the iteration ends."""
    running: set[int] = set()  # a dict that ran twice at a time could have either result

    def start(request: dict[str, Any]) -> Started:
        if id(request) in running:
            raise DataTypeError(
                "the same dict was passed again while its request is running; pass a separate dict for each request"
            )
        running.add(id(request))
        return submit(request)

    with closing(started_in_order(requests, start, concurrency)) as started:
        for request, future in started:
            result = future.result()
            running.remove(id(request))
            yield result
