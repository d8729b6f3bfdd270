"""Kills children at random moments while requests run, and counts the outcomes of all requests.

Usage: python kills.py [KILLS] [REQUESTS]. Each request must end once: with its own answer, or with ChildDied.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import bench_backends  # noqa: F401  # registers the backends
import hami
import numpy as np

from hami_process import ChildDied
from hami_process.monitor import Running, monitor

CALLERS = 8
LARGE = 200_000  # elements; every tenth request has so many


def megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def kill_one(running: list[Running]) -> bool:
    """Kill a child that starts, waits or runs a batch; return whether there was one."""
    running[:] = [each for each in running if not each.ended.is_set()]
    if not running:
        return False
    victim = random.choice(running)
    if victim.ended.wait(random.uniform(0, 0.005)):
        return False
    os.kill(victim.process.pid, random.choice([signal.SIGKILL, signal.SIGTERM]))
    return victim.ended.wait(10)


def main(kills: int, requests: int) -> int:
    running: list[Running] = []
    start = monitor()._start  # the tests of one package may look inside
    monitor()._start = lambda *begin: running.append(start(*begin)) or running[-1]  # type: ignore
    outcomes: Counter[str] = Counter()
    memory: list[float] = []
    done = threading.Event()
    sent = iter(range(requests))
    lock = threading.Lock()

    def call(pipe: hami.Pipe) -> None:
        while True:
            with lock:
                number = next(sent, None)
            if number is None and done.is_set():
                return
            number = number if number is not None else random.randrange(requests)
            data = np.full(LARGE if number % 10 == 0 else 4, number)
            try:
                result = pipe({"data": data}, timeout=120)["result"]
                right = result.shape == data.shape and (result == number).all()
                outcomes["answer" if right else "WRONG ANSWER"] += 1
            except ChildDied:
                outcomes["ChildDied"] += 1
            except Exception as error:
                outcomes[f"UNEXPECTED {type(error).__name__}: {error}"[:200]] += 1
            outcomes["ended"] += 1

    begun = time.monotonic()
    with hami.pipe({"backend": "Process[Same]", "instance_num": 4}) as pipe:
        threads = [threading.Thread(target=call, args=(pipe,)) for _ in range(CALLERS)]
        for thread in threads:
            thread.start()
        for number in range(kills):
            while outcomes["ended"] < number * requests // kills:
                time.sleep(0.001)
            while not kill_one(running):
                time.sleep(0.001)  # all children wait for their next start
            if number % max(kills // 10, 1) == max(kills // 10, 1) - 1:
                memory.append(megabytes())
                print(f"{number + 1} kills, {outcomes['ended']} requests, {memory[-1]:.0f} MB", flush=True)
        done.set()
        for thread in threads:
            thread.join()
        counters = pipe.stats()["default"].counters
    print(f"{time.monotonic() - begun:.0f} s; {dict(outcomes)}; {counters}")
    wrong = [name for name in outcomes if name.isupper() or name.startswith(("WRONG", "UNEXPECTED"))]
    lost = outcomes["ended"] - outcomes["answer"] - outcomes["ChildDied"]
    print(f"{lost} lost or wrong; memory from {memory[0]:.0f} to {max(memory):.0f} MB")
    return 1 if wrong or lost or outcomes["ended"] < requests else 0


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:]]
    sys.exit(main(*numbers, *(1000, 100_000)[len(numbers) :]))
