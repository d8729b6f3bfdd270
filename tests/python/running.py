"""Helpers of tests that run pipes: gates at which backends wait, and backends that record their batches."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hami

TIMEOUT = 60.0  # seconds; far longer than any step of a test, so that a test that hangs fails


def threads_of_process() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def threads_end(most: int) -> bool:
    """Return whether the process gets down to `most` threads; a thread that is ending needs a moment."""
    deadline = time.monotonic() + TIMEOUT
    while threads_of_process() > most and time.monotonic() < deadline:
        os.sched_yield()
    return threads_of_process() <= most


class Gate:
    """Backends arrive at the gate and wait; the test waits for arrivals and opens the gate."""

    def __init__(self) -> None:
        self._arrived = threading.Semaphore(0)
        self._opened = threading.Event()

    def enter(self) -> None:
        self._arrived.release()
        assert self._opened.wait(TIMEOUT), "the gate was not opened in time"

    def wait_for_arrival(self) -> None:
        assert self._arrived.acquire(timeout=TIMEOUT), "no backend arrived at the gate in time"

    def open(self) -> None:
        self._opened.set()


def _pass_gate(self: Any, batch: list[Any]) -> None:
    self.seen.append([item["data"] for item in batch])
    self.gate.enter()
    for item in batch:
        item["result"] = item["data"] + 100


def gated(name: str = "TestGated", **attributes: Any) -> Any:
    """Register a backend that records its batch, waits at the gate of its class, and returns data + 100."""
    body = {"gate": Gate(), "seen": [], "forward": _pass_gate, **attributes}
    return hami.register(name)(type(name, (hami.Backend,), body))


def backend(function: Callable[[list[Any]], None], name: str, **attributes: Any) -> Any:
    """Register a backend whose `forward` is this function of the batch."""
    body = {"forward": lambda self, batch: function(batch), **attributes}
    return hami.register(name)(type(name, (hami.Backend,), body))


def each(function: Callable[[Any], Any], name: str, **attributes: Any) -> Any:
    """Register a backend whose result is a function of `data`, for each request."""

    def forward(batch: list[Any]) -> None:
        for item in batch:
            item["result"] = function(item["data"])

    return backend(forward, name, **attributes)


def run_script(script: str, *arguments: str, timeout: float = TIMEOUT) -> subprocess.CompletedProcess[str]:
    """Run a Python program in a separate process."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments], capture_output=True, text=True, timeout=timeout
    )


# The start of a program with a backend that takes SECONDS and prints when it is closed. It does not wait
# in one call but returns to the interpreter all the time, like a backend that computes in Python.
SLOW = """
    import signal, sys, threading, time
    import hami

    @hami.register
    class Slow(hami.Backend):
        def forward(self, batch):
            started.set()
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                time.sleep(0.0005)
            for item in batch:
                item["result"] = "done"

        def close(self):
            print("closed", flush=True)

    started = threading.Event()
"""


def slow(seconds: float, body: str) -> str:
    return textwrap.dedent(SLOW).replace("SECONDS", str(seconds)) + textwrap.dedent(body)


def check_clean(done: subprocess.CompletedProcess[str], *lines: str) -> None:
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == list(lines)
