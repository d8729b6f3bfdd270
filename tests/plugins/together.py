"""Two questions about each class with a state: two callers at once, and a caller that leaves in the middle."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

LONG_S = 60


def pairs(methods: Iterable[str]) -> list[Any]:
    """Return each pair of names of methods as parameters of a test; a method runs beside itself too."""
    return [pytest.param(*pair, id=" and ".join(pair)) for pair in itertools.combinations_with_replacement(methods, 2)]


@contextmanager
def frequent_switches() -> Iterator[None]:
    """Let another thread run after every few instructions of Python."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


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
    with frequent_switches():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
            assert not thread.is_alive()
    if wrong:
        raise wrong[0]


class Cancelled:
    """Runs a coroutine in a task that is cancelled while it waits for the `number`th time."""

    def __init__(self, coroutine: Awaitable[object], number: int) -> None:
        self._waits = coroutine.__await__()
        self._number = number

    def __await__(self) -> Generator[Any, Any, Any]:
        for number in itertools.count():
            try:
                waited = next(self._waits)
            except StopIteration as ended:
                return ended.value
            if number == self._number:
                task = asyncio.current_task()
                assert task is not None
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                yield waited
            except BaseException as error:
                self._waits.throw(error)
                raise AssertionError("the coroutine waits on after it was cancelled") from error
        return None


def is_cancelled(coroutine: Awaitable[object], number: int) -> bool:
    """Run a coroutine that is cancelled at its `number`th wait; return False if it has ended before."""

    async def run() -> None:
        await Cancelled(coroutine, number)

    try:
        asyncio.run(run())
    except asyncio.CancelledError:
        return True
    return False


def run_forked(function: Callable[[], object]) -> None:
    """Run a function in a process that forks now, and check that it returns there."""
    child = os.fork()
    if child == 0:
        signal.alarm(LONG_S)  # ends a process that hangs
        try:
            function()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
