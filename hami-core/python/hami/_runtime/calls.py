"""Reads what callers pass as requests, runs the requests of a call that waits, and raises their errors."""

from __future__ import annotations

from hami._errors import BatchError, DataTypeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    RunMany: TypeAlias = Callable[[list[dict[str, Any]], float | None], list[BaseException | None]]


def call(run: RunMany, requests: Any, timeout: float | None) -> Any:
    """Run a dict or a list of dicts in a backend; return it, or raise its error."""
    if isinstance(requests, dict):
        (error,) = run([requests], timeout)
        if error is not None:
            raise error
        return requests
    return call_all(run, requests, timeout, "a backend")


def call_all(run: RunMany, requests: Any, timeout: float | None, taker: str) -> Any:
    """Run a list of dicts; return it, or raise BatchError with the errors. `taker` is for messages."""
    if not isinstance(requests, list) or not all(isinstance(request, dict) for request in requests):
        raise DataTypeError(f'{taker} takes a dict such as {{"data": …}}, or a list of dicts, got {kind(requests)}')
    if len({id(request) for request in requests}) < len(requests):
        raise DataTypeError("the same dict appears twice in the list; pass a separate dict for each request")
    errors = [(index, outcome) for index, outcome in enumerate(run(requests, timeout)) if outcome is not None]
    for _, error in errors:
        if isinstance(error, KeyboardInterrupt):
            raise error
    if errors:
        raise BatchError(errors)
    return requests


def kind(value: object) -> str:
    """Name the type of a value that is not a request; of a list, those of its items."""
    others = {type(item).__name__ for item in value if not isinstance(item, dict)} if isinstance(value, list) else set()
    return "a list of " + ", ".join(sorted(others)) if others else type(value).__name__


def require_dict(request: Any, method: str) -> None:
    """Raise DataTypeError unless a request is a dict. `method` is for the message."""
    if not isinstance(request, dict):
        raise DataTypeError(f'{method} takes one dict such as {{"data": …}}, got {kind(request)}')
