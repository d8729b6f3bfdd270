"""What a request through a worker costs with 64 callers, with and without priorities, deadlines and admission.

python tests/bench/identity_worker.py [--other PYTHON] [--rounds 5] [--seconds 2] [--cores 1,2,4]

Each cell is a process of its own. In a round, the cells run one after the other, and ratios are taken within a round.
`--other` is an interpreter with another build of hami-core, for example of an earlier commit. With `--cores`, plain
requests and a Python backend run on so many cores instead, and ratios are to the first number of cores.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from _load import by_threads

CALLERS = 64
WORKER: dict[str, Any] = {"backend": "BackgroundThread[Identity]"}
CLASSES = {**WORKER, "admission": "deadline", "aging": "2s"}


def plain() -> Callable[[Any], Any]:
    import hami

    pipe = hami.pipe(WORKER)
    return lambda payload: pipe({"data": payload})["result"]


def classes() -> Callable[[Any], Any]:
    """Requests with a priority and a timeout, which each goes to a lane, a deadline and admission."""
    import hami

    pipe = hami.pipe(CLASSES)
    return lambda payload: pipe({"data": payload, "priority": payload, "timeout": 60.0})["result"]


def python_queue() -> Callable[[Any], Any]:
    """A queue.Queue, a thread, and an Event for each request."""
    waiting: queue.Queue[tuple[Any, threading.Event, list[Any]]] = queue.Queue()

    def serve() -> None:
        while True:
            payload, done, answer = waiting.get()
            answer.append(payload)
            done.set()

    threading.Thread(target=serve, daemon=True).start()

    def call(payload: Any) -> Any:
        done = threading.Event()
        answer: list[Any] = []
        waiting.put((payload, done, answer))
        done.wait()
        return answer[0]

    return call


def python_backend() -> Callable[[Any], Any]:
    """A backend in Python on a thread of its own."""
    import hami

    @hami.register
    class BenchSame(hami.Backend):
        thread = "dedicated"

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = item["data"]

    pipe = hami.pipe({"backend": "BenchSame"})
    return lambda payload: pipe({"data": payload})["result"]


CELLS = {"plain": plain, "classes": classes, "queue": python_queue, "python": python_backend}


def cell(name: str, seconds: float) -> dict[str, float]:
    priorities = [0, 0, 0, 0, 0, 100, 254, 255]
    return by_threads(CELLS[name](), priorities, CALLERS, seconds)


def rejection_times(count: int) -> list[float]:
    """Return the microseconds until an impossible deadline raises, while a batch runs and others wait."""
    import hami

    @hami.register
    class BenchSlow(hami.Backend):
        thread = "dedicated"

        def forward(self, batch: list[Any]) -> None:
            time.sleep(0.02)
            for item in batch:
                item["result"] = None

    took: list[float] = []
    with hami.pipe({"backend": "BenchSlow", "admission": "deadline"}) as pipe:
        for _ in range(5):  # the node learns how long it takes
            pipe({"data": 0})
        while len(took) < count:
            waiting = [pipe.submit({"data": 0}) for _ in range(10)]
            for _ in range(count // 10):
                began = time.perf_counter()
                try:
                    pipe({"data": 0, "timeout": 0.001})
                except hami.DeadlineExceeded as error:
                    if "cannot end" in str(error):  # every 64th is admitted and expires
                        took.append((time.perf_counter() - began) * 1e6)
            for future in waiting:
                future.result()
    return took


def measured(python: str, name: str, seconds: float, cores: int = 0) -> dict[str, float]:
    command = [python, __file__, "--cell", name, "--seconds", str(seconds), "--cores", str(cores)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--cores", default="", help="numbers of cores, such as 1,2,4")
    parser.add_argument("--cell", choices=CELLS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cell:
        if cores := int(given.cores or 0):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
        print(json.dumps(cell(given.cell, given.seconds)))
        return
    rows = {
        "plain requests": (sys.executable, "plain"),
        "priorities, timeouts, admission": (sys.executable, "classes"),
        "queue.Queue": (sys.executable, "queue"),
    }
    if given.other:
        rows["plain requests, other build"] = (given.other, "plain")
    numbers = [int(number) for number in given.cores.split(",") if number]
    if numbers:
        for which, title in (("plain", "plain requests"), ("python", "a Python backend")):
            show({f"{title}, cores: {cores}": (sys.executable, which, cores) for cores in numbers}, given)
        return
    show({name: (*row, 0) for name, row in rows.items()}, given)
    took = sorted(rejection_times(1000))
    print(
        f"impossible deadline rejected: median {took[len(took) // 2]:.1f} us, p99 {took[len(took) * 99 // 100]:.1f} us"
    )


def show(rows: dict[str, tuple[str, str, int]], given: argparse.Namespace) -> None:
    """Measure rows (interpreter, cell, cores or 0 for all) in turns and print them; ratios are to the first."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in rows}
    for _ in range(given.rounds):
        for name, (python, which, cores) in rows.items():
            found[name].append(measured(python, which, given.seconds, cores))
    base = next(iter(found.values()))
    print("| 64 threads, Identity through a worker | calls/s | ratio (min … max) | CPU µs per call | ratio |")
    print("|---|---|---|---|---|")
    for name, cells in found.items():
        ratios = [one["calls_per_s"] / other["calls_per_s"] for one, other in zip(cells, base, strict=True)]
        rate, cpu = (statistics.median(one[key] for one in cells) for key in ("calls_per_s", "cpu_us"))
        ratio = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} … {max(ratios):.3f})"
        costs = [one["cpu_us"] / other["cpu_us"] for one, other in zip(cells, base, strict=True)]
        print(f"| {name} | {rate:,.0f} | {ratio} | {cpu:.1f} | {statistics.median(costs):.3f} |")
    others = statistics.median(one["others_cores"] for cells in found.values() for one in cells)
    print(f"\nother programs used {others:.2f} cores")


if __name__ == "__main__":
    main()
