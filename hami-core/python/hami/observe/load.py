"""Loads a pipe from threads of the core, which do not need the GIL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from hami import _core


class _Pipe(Protocol):
    """A `hami.Pipe`."""

    _core: _core.Pipe


def load_pipe(pipe: _Pipe, requests: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    """Call a pipe from several threads, and return what was measured.

    A closed loop has `clients`, `warmup` and `calls` or `seconds`; an open loop has `arrivals`. `seed` makes the choice
    of requests repeatable.
    """
    return pipe._core.load(requests, **options)
