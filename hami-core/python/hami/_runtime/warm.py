"""Implements `Pipe.warmup`: runs batches before the first request does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

from hami._errors import BatchError, ConfigError
from hami.observe.description import PipeDescription


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
