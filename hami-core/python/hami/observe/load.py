"""Loads a pipe from threads of the core, which do not need the GIL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hami._runtime.pipe import Pipe


def load_pipe(pipe: Pipe, requests: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    """Call a pipe from several threads, and return what was measured.

    A closed loop has `clients`, `warmup` and `calls` or `seconds`; an open loop has `arrivals`. `seed` makes the choice
    of requests repeatable.
    """
    return pipe._core.load(requests, **options)
