"""What the tests of running pipes share: doors that backends wait at, and backends that note what they saw."""

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

PATIENCE = 60.0  # far more than any step of a test takes; a test that would hang fails then


def threads_of_process() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def threads_end(most: int) -> bool:
    """Tell whether no more than so many threads are left; one that is about to end may take its time for it."""
    patience = time.monotonic() + PATIENCE
    while threads_of_process() > most and time.monotonic() < patience:
        os.sched_yield()
    return threads_of_process() <= most


class Gate:
    """Backends come in and wait; the test sees who is inside and opens."""

    def __init__(self) -> None:
        self._arrived = threading.Semaphore(0)
        self._opened = threading.Event()

    def enter(self) -> None:
        self._arrived.release()
        assert self._opened.wait(PATIENCE), "nobody opened the gate"

    def wait_for_arrival(self) -> None:
        assert self._arrived.acquire(timeout=PATIENCE), "nobody came to the gate"

    def open(self) -> None:
        self._opened.set()


def _pass_gate(self: Any, batch: list[Any]) -> None:
    self.seen.append([item["data"] for item in batch])
    self.gate.enter()
    for item in batch:
        item["result"] = item["data"] + 100


def gated(name: str = "TestGated", **attributes: Any) -> Any:
    """Register a backend that notes its batch, waits at the gate of its class, then answers data + 100."""
    body = {"gate": Gate(), "seen": [], "forward": _pass_gate, **attributes}
    return hami.register(name)(type(name, (hami.Backend,), body))


def backend(function: Callable[[list[Any]], None], name: str, **attributes: Any) -> Any:
    """Register a backend whose forward is this function of the batch."""
    body = {"forward": lambda self, batch: function(batch), **attributes}
    return hami.register(name)(type(name, (hami.Backend,), body))


def each(function: Callable[[Any], Any], name: str, **attributes: Any) -> Any:
    """Register a backend that answers each request with a function of its data."""

    def forward(batch: list[Any]) -> None:
        for item in batch:
            item["result"] = function(item["data"])

    return backend(forward, name, **attributes)


def run_script(script: str, *arguments: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
    """Run a Python program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments], capture_output=True, text=True, timeout=timeout
    )


# Programs with a backend that takes its time and tells when it is closed.
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
