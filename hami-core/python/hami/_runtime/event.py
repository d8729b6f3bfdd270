"""Waits for an event inside an asyncio loop."""

from __future__ import annotations

import asyncio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hami._core import Event


async def outcome(event: Event) -> Any:
    """Return the event's value when it is done; raise its exception if it failed."""
    if not event.done():
        await _told(event)
    error = event.exception()
    if error is not None:
        raise error
    return event.value()


async def _told(event: Event) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not future.done():  # the wait was not cancelled meanwhile
            future.set_result(None)

    def tell(_: Event) -> None:
        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:  # the loop was closed, and with it went who waited
            if not loop.is_closed():
                raise

    number = event._watch(tell)
    try:
        await future
    finally:
        event._unwatch(number)
