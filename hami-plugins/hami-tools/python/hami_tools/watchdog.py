"""The watchdog: logs queues, owners and stacks once a request there takes far longer than those before it did."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import hami.observe

TIMES_USUAL = 10  # a request is late after so many times the mean of its node
LOOKS = 4  # in the least time, so that a report comes at most a quarter of it too late
STACKS = 64  # that one report has
CALLS = 20  # innermost ones, that each stack has
ENDS = ("completed", "failed", "rejected", "expired", "cancelled")


class Watchdog:
    """Looks at the nodes of all open pipes of the process, and finds those with a late request."""

    def __init__(self, least_s: float) -> None:
        self.least_s = least_s
        self.is_idle = False  # no pipe was open at the last look
        self._ended: dict[tuple[int, str], tuple[int, float]] = {}  # how many requests, and when that was first seen
        self._late: set[tuple[int, str]] = set()

    def look(self, status: Any, moment: float) -> list[str]:
        """Return a line for each node with a request that has become late since the last look.

        A node whose late request has ended is reported again for another one.

        Args:
            status: The document that `hami.observe.status` returns.
            moment: Of the document, in seconds, as of `time.monotonic`.
        """
        late = dict(self._find(status["pipes"], moment))
        lines = [line for node, line in late.items() if node not in self._late]
        self._late = set(late)
        self.is_idle = not status["pipes"]
        return lines

    def _find(self, pipes: list[Any], moment: float) -> Iterator[tuple[tuple[int, str], str]]:
        ended_before, self._ended = self._ended, {}
        for pipe in pipes:
            for name, node in pipe["stats"].items():
                key = (pipe["opened_ns"], name)
                ended = sum(node[end] for end in ENDS)
                before, since = ended_before.get(key, (None, moment))
                self._ended[key] = (ended, since if before == ended and node["waiting"] else moment)
                runs = max((thread["seconds"] for thread in pipe["threads"] if thread["node"] == name), default=0.0)
                waits = moment - self._ended[key][1]
                for seconds, kind, what in ((runs, "batch_ms", "runs"), (waits, "latency_ms", "has not begun")):
                    usual = _mean_s(node, kind)
                    if usual is not None and seconds > max(self.least_s, TIMES_USUAL * usual):
                        yield key, f'a request of node "{name}" {what} for {seconds:.1f} s; the mean is {usual:.2g} s'
                        break


def _mean_s(node: Any, kind: str) -> float | None:
    """Return the mean of a histogram of milliseconds in seconds; None if it is empty."""
    total_ms, buckets = node.get(kind, (0.0, []))
    count = sum(bucket[2] for bucket in buckets)
    return total_ms / count / 1e3 if count else None


def report(lines: list[str], status: Any) -> str:
    """Return the text of a report: the late nodes, the queues, the threads in backends, and the stacks of Python."""
    return "\n".join(
        [
            "watchdog: " + "; ".join(lines),
            "queues:",
            *_queues(status),
            "owners:",
            *_owners(status),
            "stacks:",
            *_stacks(),
        ]
    )


def _queues(status: Any) -> Iterator[str]:
    for pipe in status["pipes"]:
        of_pipe = f" of {pipe['label']}" if pipe["label"] else ""
        for name, node in pipe["stats"].items():
            counts = f"{node['waiting']} wait, {node['running']} run, {node['completed']} completed"
            yield f'  node "{name}"{of_pipe}: {counts}'


def _owners(status: Any) -> Iterator[str]:
    for pipe in status["pipes"]:
        for thread in pipe["threads"]:
            number, where = thread["thread"], f'{thread["backend"]} of node "{thread["node"]}"'
            yield f"  thread {number} ({_name_of(number)}): in {where} for {thread['seconds']:.1f} s"


def _name_of(thread: int) -> str:
    """Return the name of a thread that the system knows; that of an instance has its node and its number."""
    try:
        with open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="backslashreplace") as file:
            return file.read().strip()
    except OSError:  # it has ended
        return "ended"


def _stacks() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    others = [(each, frame) for each, frame in sys._current_frames().items() if each != threading.get_ident()]
    for ident, frame in others[:STACKS]:
        yield f"  thread {ident:#x} ({names.get(ident, 'of the core or of native code')}):"
        for call in traceback.extract_stack(frame)[-CALLS:]:
            yield f"    {call.filename}:{call.lineno} in {call.name}: {call.line}"
    if len(others) > STACKS:
        yield f"  and {len(others) - STACKS} more threads"


_guard = threading.Lock()
_process: int | None = None  # in which the thread runs

os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_guard.release)


def start(least_s: float, log: Callable[[str], None]) -> None:
    """Start the thread unless it runs; it ends after the last pipe. Reports go to `log`."""
    global _process
    with _guard:
        if _process == os.getpid():
            return
        threading.Thread(target=_watch, args=(least_s, log), name="hami-watchdog", daemon=True).start()
        _process = os.getpid()


def _watch(least_s: float, log: Callable[[str], None]) -> None:
    global _process
    try:
        _look_until_idle(Watchdog(least_s), log)
    except BaseException:
        with _guard:
            _process = None  # the next pipe starts another thread
        raise


def _look_until_idle(watchdog: Watchdog, log: Callable[[str], None]) -> None:
    global _process
    while True:
        time.sleep(watchdog.least_s / LOOKS)
        with _guard:  # a pipe that opens now is seen here, or starts the next thread
            status = json.loads(hami.observe.status())
            lines = watchdog.look(status, time.monotonic())
            if watchdog.is_idle:
                _process = None
                return
        if lines:
            log(report(lines, status))
