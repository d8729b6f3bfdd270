"""Awaits a hami.Event in an asyncio loop."""

from __future__ import annotations

import asyncio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hami._core import Event


async def outcome(event: Event) -> Any:
    """Wait until the event is complete; return its value or raise its exception."""
    if not event.done():
        await _completion(event)
    error = event.exception()
    if error is not None:
        raise error
    return event.value()


async def _completion(event: Event) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def wake_task() -> None:
        if not future.done():  # the task was not cancelled meanwhile
            future.set_result(None)

    def on_completion(_: Event) -> None:
        try:
            loop.call_soon_threadsafe(wake_task)
        except RuntimeError:  # the loop is closed, so the task is gone
            if not loop.is_closed():
                raise

    number = event._watch(on_completion)
    try:
        await future
    finally:
        event._unwatch(number)
