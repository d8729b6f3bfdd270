"""Helpers for tests of concurrent calls and cancelled callers: a backend that counts its instances, cancelled tasks."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterable

import hami

from hami_serve import AllRounder

LONG_S = 60


class Loaded:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = 0

    def add(self, number: int) -> None:
        with self._lock:
            self.now += number


LOADED = Loaded()


@hami.register
class TestCounted(hami.Backend):
    """Returns its word, and counts its instances."""

    word: str
    device: str = "cpu"

    def init(self, options):
        LOADED.add(1)

    def forward(self, batch):
        for item in batch:
            item["result"] = self.word

    def close(self):
        LOADED.add(-1)


def counted(word: str) -> dict[str, object]:
    return {"source": {"backend": "TestCounted", "word": word, "device": "cpu"}}


def run_together(calls: Iterable[Callable[[], object]], allowed: tuple[type[BaseException], ...] = ()) -> None:
    """Run all calls at the same time, twice each; raise the first exception that is not allowed."""
    calls = list(calls) * 2
    wrong: list[BaseException] = []
    together = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> None:
        together.wait(LONG_S)
        try:
            call()
        except allowed:
            pass
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
        assert not thread.is_alive()
    if wrong:
        raise wrong[0]


def wait_released(rounder: AllRounder) -> None:
    """Wait until no request is counted: a future has its result a moment before."""
    for _ in range(LONG_S * 100):
        if not any(model.in_flight for model in rounder.models()):
            return
        threading.Event().wait(0.01)
    raise AssertionError(rounder.table())


class Cancelled:
    """Runs a coroutine in a task that is cancelled while it waits for the `number`th time."""

    def __init__(self, coroutine, number: int) -> None:
        self._waits = coroutine.__await__()
        self._number = number

    def __await__(self):
        for number in itertools.count():
            try:
                waited = next(self._waits)
            except StopIteration as ended:
                return ended.value
            if number == self._number:
                task = asyncio.current_task()
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                yield waited
            except BaseException as error:
                self._waits.throw(error)
                raise AssertionError("the coroutine waits on after it was cancelled") from error
