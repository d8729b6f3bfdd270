"""Each pair of calls of a pipe with a child process at the same time: each request ends, and so does each child."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import hami
import numpy as np
import pytest
from together import is_cancelled, pairs, run_forked, run_together

from hami_process import ChildDied

WAIT = 20  # seconds, for what takes milliseconds on a machine that is not busy
KILL = int(signal.SIGKILL)
ARRAY = np.arange(1 << 16)


def echo(pipe: hami.Pipe, *values: Any) -> None:
    for value in values:
        assert np.array_equal(pipe({"data": ("echo", value)})["result"], value)


def fail(pipe: hami.Pipe) -> None:
    with pytest.raises(KeyError, match="only this one"):  # an exception of `forward` is that of a whole batch
        pipe({"data": ("fail", "item")})


def stream(pipe: hami.Pipe) -> None:
    assert list(pipe.stream({"data": ("emit_all", [1, 2, 3])})) == [1, 2, 3]


def stop_streaming(pipe: hami.Pipe) -> None:
    with contextlib.closing(pipe.stream({"data": ("emit_all", list(range(100)))})) as parts:
        assert next(parts) == 0


def leave(pipe: hami.Pipe) -> None:
    for number in itertools.count():
        if not is_cancelled(pipe.acall({"data": ("echo", ARRAY)}), number):
            return


def crash(pipe: hami.Pipe) -> None:
    with pytest.raises(ChildDied):
        pipe({"data": ("signal", KILL)})


CALLS: dict[str, Callable[[hami.Pipe], object]] = {
    "echo": lambda pipe: echo(pipe, 1, "two", ARRAY),
    "fail": fail,
    "stream": stream,
    "stop a stream": stop_streaming,
    "leave": leave,
    "crash": crash,
    "fork": lambda pipe: run_forked(pipe.stats),
    "replace": lambda pipe: pipe.replace({"acts": {"backend": "Process[Act]"}}),
    "close": lambda pipe: pipe.close(),
}


ENDS = ("replace", "close")  # which end a child


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a process with threads forks
@pytest.mark.parametrize(("first", "second"), pairs(name for name in CALLS if name not in ENDS))
def test_two_calls_of_a_pipe_with_a_child_at_once(shared, first, second):
    run_together([lambda name=name: CALLS[name](shared) for name in (first, second)], allowed(first, second))
    echo(shared, "after")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("first", "second"), list(itertools.product(CALLS, ENDS)))
def test_calls_of_a_pipe_whose_child_is_replaced_or_ends(first, second):
    before = children_of_this_process()
    with hami.pipe({"acts": {"backend": "Process[Act]"}}) as pipe:
        run_together([lambda name=name: CALLS[name](pipe) for name in (first, second)], allowed(first, second))
        if "close" not in (first, second):
            echo(pipe, "after")
    end = time.monotonic() + WAIT
    while not children_of_this_process() <= before and time.monotonic() < end:
        gc.collect()  # another thread may still leave a pipe that is closed
    assert children_of_this_process() <= before


def allowed(*names: str) -> tuple[type[BaseException], ...]:
    """Return what a call may raise beside these."""
    of = {"crash": (ChildDied, hami.BatchError), "close": (hami.PipeClosed,)}
    return tuple(itertools.chain.from_iterable(of.get(name, ()) for name in names))


def children_of_this_process() -> set[int]:
    """Return the child processes that run, and those that have ended and were not waited for."""
    found: set[int] = set()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{task}/children") as children:
            found |= set(map(int, children.read().split()))
    return found
