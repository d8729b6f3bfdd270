"""Implements `Pipe.map`: several requests at a time, results in the order of the requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from hami._errors import DataTypeError


def ordered_map(
    submit: Callable[[dict[str, Any]], Future[dict[str, Any]]], requests: Iterable[dict[str, Any]], concurrency: int
) -> Iterator[dict[str, Any]]:
    """Yield each completed request in order; cancel the outstanding requests when the iteration ends."""
    running: deque[Future[dict[str, Any]]] = deque()
    running_ids: set[int] = set()  # a dict that ran twice at a time could have either result

    def next_completed() -> dict[str, Any]:
        request = running.popleft().result()
        running_ids.remove(id(request))
        return request

    try:
        for request in requests:
            if id(request) in running_ids:
                raise DataTypeError(
                    "the same dict was passed again while its request is running; pass a separate dict for each request"
                )
            running.append(submit(request))
            running_ids.add(id(request))
            if len(running) == concurrency:
                yield next_completed()
        while running:
            yield next_completed()
    finally:
        for future in running:
            future.cancel()
