"""Threads for what may hang: the process ends without waiting for them, and nothing else runs on them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Threads:
    """Runs functions on at most `limit` threads at a time. More of them wait for one to end, in their order."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._lock = threading.Lock()
        self._threads = 0
        self._waiting: list[tuple[str | None, Callable[[], None]]] = []
        self._running: set[str | None] = set()  # keys

    def start(self, function: Callable[..., T], *arguments: Any, key: str | None = None) -> Outcome[T]:
        """Return a future of the result. It cannot be cancelled: a caller that leaves ends only its own wait.

        Args:
            function: What to run.
            arguments: Its arguments.
            key: Of functions with the same key, one runs at a time. The others wait without a thread.
        """
        future: Outcome[T] = Outcome()

        def run() -> None:
            try:
                result = function(*arguments)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._lock:
            self._waiting.append((key, run))
            if self._threads == self._limit or (key is not None and key in self._running):
                return future
            self._threads += 1
        try:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        except BaseException:
            with self._lock:
                self._threads -= 1
                if (key, run) in self._waiting:
                    self._waiting.remove((key, run))
            raise
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                found = next((each for each in self._waiting if each[0] not in self._running), None)
                if found is None:
                    self._threads -= 1
                    return
                self._waiting.remove(found)
                key, run = found
                if key is not None:
                    self._running.add(key)
            run()
            del found, run  # and what they hold, before the next one
            with self._lock:
                self._running.discard(key)


class Outcome(Future[T]):
    """A future that many can wait for: one that leaves does not cancel it, and is forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()
        self._waiting: dict[asyncio.AbstractEventLoop, set[asyncio.Future[None]]] = {}

    async def wait(self, timeout: float | None = None) -> None:
        """Wait in a task until there is an outcome, at most for `timeout` seconds."""
        import asyncio  # only programs with a loop need it

        loop = asyncio.get_running_loop()
        if self.done():
            return
        waiter: asyncio.Future[None] = loop.create_future()
        waiting = self._waiting.get(loop)
        if waiting is None:
            waiting = self._waiting[loop] = set()
            self.add_done_callback(lambda _: self._tell(loop))
        waiting.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=timeout)
        finally:
            waiting.discard(waiter)

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        def wake(waiting: set[asyncio.Future[None]]) -> None:
            for waiter in waiting:
                waiter.set_result(None)

        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(wake, self._waiting.pop(loop))
