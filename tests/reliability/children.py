"""Child processes are killed at random moments: each request has one outcome, its own answer or one ChildDied.

python tests/reliability/children.py --seconds 60
python tests/reliability/children.py --kills 1000 --sanitized

`--kills N` ends N children by SIGKILL or SIGTERM, after a hundred requests: those that start, wait or run a batch.
`--sanitized` compiles the native library of hami-process under AddressSanitizer and UndefinedBehaviorSanitizer first;
it needs clang++ or g++, and the build tools of ci/requirements/tools.txt.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any

import hami
import numpy as np
from hami_process import ChildDied
from hami_process.monitor import Running, monitor
from promise import Broken, Clock, Figures, give_freed_memory_back, keep, resident_mb

CHILDREN, CALLERS = 4, 8
REQUESTS_PER_KILL = 100
LARGE, LARGE_EVERY = 200_000, 10  # numbers in an array that goes through shared memory, and how often
DELAY_S = 0.005  # before a child is killed, at most
TIMEOUT_S = 120.0
GROWTH_MB = {"": 5.0, "1": 100.0}  # in two thirds of the kills; sanitizers keep freed memory, and hide less than that
WARM_UP = 20  # kills until arrays of all callers have been in shared memory
SANITIZED = "HAMI_PROMISE_SANITIZED"
WORK = Path(tempfile.gettempdir(), f"hami-process-sanitized-{os.getuid()}")


@hami.register
class PromiseReturns(hami.Backend):
    """Answers with its input."""

    max = 4

    def forward(self, batch: list[hami.Request]) -> None:
        """Return a copy."""
        for item in batch:
            item["result"] = item["data"].copy()


class Children:
    """The child processes of this program."""

    def __init__(self) -> None:
        self._running: list[Running] = []
        start = monitor()._start

        def kept(*begin: Any) -> Running:
            running = start(*begin)
            self._running.append(running)
            return running

        monitor()._start = kept  # type: ignore[method-assign]  # to see those that still start

    def kill_one(self) -> bool:
        """Kill a child; return whether there was one that had not ended."""
        self._running[:] = [each for each in self._running if not each.ended.is_set()]
        if not self._running:
            return False
        victim = random.choice(self._running)
        if victim.ended.wait(random.uniform(0, DELAY_S)):
            return False
        os.kill(victim.process.pid, random.choice([signal.SIGKILL, signal.SIGTERM]))
        return victim.ended.wait(TIMEOUT_S)


class Requests:
    """Callers that send requests until they are stopped, and what became of these."""

    def __init__(self, pipe: hami.Pipe) -> None:
        self._pipe, self._numbers, self._lock = pipe, count(), threading.Lock()
        self._is_over = threading.Event()
        self.outcomes: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._call) for _ in range(CALLERS)]
        for thread in self._threads:
            thread.start()

    @property
    def ended(self) -> int:
        return self.outcomes["ended"]

    def stop(self) -> None:
        """Let each caller end its last request."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _call(self) -> None:
        while not self._is_over.is_set():
            with self._lock:
                number = next(self._numbers)
            data = np.full(LARGE if number % LARGE_EVERY == 0 else 4, number)
            future = self._pipe.submit({"data": data}, timeout=TIMEOUT_S)
            future.add_done_callback(lambda _: self._count("ended"))
            self._count(self._outcome(future, data))

    @staticmethod
    def _outcome(future: Future[Any], data: Any) -> str:
        try:
            result = future.result(2 * TIMEOUT_S)["result"]
        except ChildDied:
            return "ChildDied"
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:200]
        return "answers" if np.array_equal(result, data) else "answers of others"

    def _count(self, name: str) -> None:
        with self._lock:
            self.outcomes[name] += 1


class Range:
    """The least and the most of some figures, which are not kept."""

    def __init__(self, figure: float) -> None:
        self.least = self.most = figure

    def add(self, figure: float) -> None:
        """Take one more figure into account."""
        self.least, self.most = min(self.least, figure), max(self.most, figure)


def memory_of(kills: list[Range], limit: float) -> Figures:
    """Return the memory at the first and the last third of the kills after the warm-up. Raises Broken if it grew."""
    settled = kills[min(WARM_UP, len(kills) // 2) :]
    third = -(-len(settled) // 3)
    # Requests in flight have tens of MB; the least of many figures has the fewest of them.
    first, last = (min(each.least for each in part) for part in (settled[:third], settled[-third:]))
    figures: Figures = {
        "MB at least, first third": round(first, 1),
        "MB at least, last third": round(last, 1),
        "MB at most": round(max(each.most for each in kills), 1),
    }
    if len(kills) < 2 * WARM_UP:
        return {**figures, "not tried": f"memory: {len(kills)} kills are too few to see whether it grows"}
    keep(last - first <= limit, f"{len(kills)} kills: memory grew from {first:.0f} to {last:.0f} MB")
    return figures


def run(seconds: float, kills: int | None = None) -> Figures:
    """Kill children for some time, or as often as is asked for."""
    sanitized = os.environ.get(SANITIZED, "")
    logging.getLogger("hami").setLevel(logging.ERROR)  # each death is a warning
    children, clock, memory = Children(), Clock(seconds), list[Range]()
    with hami.pipe({"backend": "Process[PromiseReturns]", "instance_num": CHILDREN}) as pipe:
        requests = Requests(pipe)
        try:
            for killed in count(1):
                due = requests.ended + REQUESTS_PER_KILL  # so that children which start are not killed at once
                seen = Range(resident_mb())
                while requests.ended < due:
                    time.sleep(0.001)
                    seen.add(resident_mb())
                while not children.kill_one():
                    time.sleep(0.001)  # all of them wait for their next start
                memory.append(seen)
                if kills and killed % max(kills // 10, 1) == 0:
                    print(
                        f"{killed} kills, {requests.ended} requests, {seen.least:.0f} MB", file=sys.stderr, flush=True
                    )
                if killed == kills or (kills is None and not clock):
                    break
        finally:
            requests.stop()
        stats = pipe.stats()["default"]
    libraries = Path("/proc/self/maps").read_text()
    keep(not sanitized or str(WORK) in libraries, f"the native library of {WORK} was not used")
    outcomes = requests.outcomes
    total = outcomes["answers"] + outcomes["ChildDied"]
    keep(
        total == outcomes["ended"] == sum(outcomes.values()) / 2, f"requests have no or two outcomes: {dict(outcomes)}"
    )
    keep(stats.completed + stats.failed == total, f"{total} requests, of which the node has seen {stats}")
    return {
        "kills": killed,
        "of children that had started": stats.counters.get("process_deaths", 0),
        "requests": total,
        "answers": outcomes["answers"],
        "ChildDied": outcomes["ChildDied"],
        "lost, doubled or wrong": 0,
        "sanitized": sanitized == "1",
        **memory_of(memory, GROWTH_MB[sanitized]),
    }


def run_sanitized() -> None:
    """Begin this program again with a native library under sanitizers."""
    from hami_build import project, sanitizers

    root = Path(__file__).resolve().parents[2]
    sanitizer = sanitizers.find()
    if sanitizer is None:
        raise Broken(f"no runtime of AddressSanitizer is installed: {sanitizers.PACKAGES}")
    plugin = project.read(root / "hami-plugins" / "hami-process")
    site = sanitizers.build(plugin, WORK, root / "hami-core" / "cmake", sanitizer)
    variables = {**sanitizer.variables(), "PYTHONPATH": str(site), SANITIZED: "1"}
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **variables})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to try; default: 10")
    parser.add_argument("--kills", type=int, metavar="N", help="how many children to kill, in place of --seconds")
    parser.add_argument("--sanitized", action="store_true", help="with a native library under sanitizers")
    parser.add_argument("--strict", action="store_true", help="no effect: this promise has no times")
    arguments = parser.parse_args()
    if arguments.sanitized and SANITIZED not in os.environ:
        run_sanitized()
    give_freed_memory_back()
    print(json.dumps(run(arguments.seconds, arguments.kills)))


if __name__ == "__main__":
    main()
