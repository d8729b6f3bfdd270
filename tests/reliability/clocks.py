"""A process that stops for a while, and cores that disappear: requests that can be served are served.

python tests/reliability/clocks.py --seconds 60
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import Counter

import hami
from promise import Clock, Figures, keep, main

CALLERS = 8
STOPPED_S = 10.0  # at most
TIMEOUT_S = 2.0
BURST = 200  # requests of each caller
STOP = """
import os, signal, sys, time
pid, seconds = int(sys.argv[1]), float(sys.argv[2])
os.kill(pid, signal.SIGSTOP)
time.sleep(seconds)
os.kill(pid, signal.SIGCONT)
"""


@hami.register
class PromiseTakes1ms(hami.Backend):
    """A model that takes 1 ms for up to eight requests."""

    max = 8

    def forward(self, batch: list[hami.Request]) -> None:
        """Wait, without the GIL."""
        time.sleep(0.001)
        for item in batch:
            item["result"] = item["data"]


def burst(pipe: hami.Pipe, timeout: float) -> Counter[str]:
    """Send requests from several threads; return how they ended."""
    ends: Counter[str] = Counter()
    lock = threading.Lock()

    def call() -> None:
        for number in range(BURST):
            try:
                good = pipe({"data": number}, timeout=timeout)["result"] == number
                end = "success" if good else "a wrong answer"
            except hami.Error as error:
                end = type(error).__name__
            with lock:
                ends[end] += 1

    threads = [threading.Thread(target=call) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keep(ends.total() == CALLERS * BURST, f"of {CALLERS * BURST} requests, these ended: {ends}")
    return ends


def stopped(pipe: hami.Pipe, seconds: float) -> int:
    """Stop the process while requests run; return how many of those in flight then expired."""
    with subprocess.Popen([sys.executable, "-c", STOP, str(os.getpid()), str(seconds)]) as other:
        ends: Counter[str] = Counter()
        while other.poll() is None:
            ends += burst(pipe, TIMEOUT_S)
    other_ends = set(ends) - {"success", "DeadlineExceeded"}
    keep(not other_ends, f"while the process stopped, requests ended so: {ends}")
    keep(ends["DeadlineExceeded"] <= CALLERS, f"{ends['DeadlineExceeded']} requests of {CALLERS} callers expired")
    after = burst(pipe, TIMEOUT_S)
    keep(set(after) == {"success"}, f"after the process continued, requests ended so: {after}")
    return ends["DeadlineExceeded"]


def allow(cores: set[int]) -> None:
    """Let the threads of this process run on these cores only."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), cores)


def fewer_cores(pipe: hami.Pipe) -> None:
    """Take all cores but one from the process while it serves, and give them back."""
    cores = os.sched_getaffinity(0)
    allow({min(cores)})
    ends = burst(pipe, TIMEOUT_S)
    allow(cores)
    keep(set(ends) == {"success"}, f"on one core, requests ended so: {ends}")
    ends = burst(pipe, TIMEOUT_S)
    keep(set(ends) == {"success"}, f"with all cores again, requests ended so: {ends}")


def run(seconds: float, strict: bool) -> Figures:
    """Stop the process again and again, at most for half of the time."""
    stops = expired = 0
    clock = Clock(seconds)
    with hami.pipe({"backend": "PromiseTakes1ms"}) as pipe:
        keep(set(burst(pipe, TIMEOUT_S)) == {"success"}, "requests expire on a machine that never stopped")
        while clock or stops < 1:
            expired += stopped(pipe, min(STOPPED_S, max(0.1, seconds / 4)))
            fewer_cores(pipe)
            stops += 1
        longest = max(node.queue_ms.max for node in pipe.stats().values())
    keep(longest <= (STOPPED_S + TIMEOUT_S) * 1e3, f"a request waited for {longest} ms")  # a negative time is huge
    return {"stops": stops, "expired in flight": expired, "callers": CALLERS}


if __name__ == "__main__":
    main(run, "requests that can be served are served when clocks jump and cores disappear")
