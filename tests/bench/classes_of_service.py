"""What urgent requests wait for on a busy node, against the same load in arrival order.

python tests/bench/classes_of_service.py [ROUNDS]

64 threads call a node in a loop with normal requests; urgent ones arrive as a Poisson process, 20 per second. The
device is a backend that sleeps for a batch time of `overhead + each * items`, so the figures do not depend on the
processor as long as it keeps up. Each round runs every variant once, in turn. "FIFO" sends the urgent requests as
normal ones.
"""

from __future__ import annotations

import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import hami

CALLERS, URGENT_PER_S = 64, 20
WARM_UP_S, MEASURED_S = 2.0, 5.0
AGING_S, AGING_MEASURED_S = 2.0, 30.0


@hami.register
class BenchDevice(hami.Backend):
    """Takes `overhead + each * items` milliseconds for a batch."""

    thread = "dedicated"
    overhead: float
    each: float

    def forward(self, batch: list[Any]) -> None:
        time.sleep((self.overhead + self.each * len(batch)) / 1e3)
        for item in batch:
            item["result"] = None


@dataclass
class Device:
    overhead: float
    each: float
    max: int

    def time(self, items: int) -> float:
        return self.overhead + self.each * items

    def config(self, **keys: Any) -> dict[str, Any]:
        return {
            "backend": "BenchDevice",
            "overhead": self.overhead,
            "each": self.each,
            "max": self.max,
            "instance_num": 1,
            **keys,
        }


@dataclass
class Figures:
    urgent_ms: list[float] = field(default_factory=list)
    normal_per_s: list[float] = field(default_factory=list)


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def urgent_load(pipe: Any, priority: int, per_s: float, begin: float, until: float, took: list[float]) -> None:
    """Send urgent requests until then; appends the milliseconds that each took which was sent after `begin`."""
    moment, pending = time.perf_counter(), []
    while (moment := moment + random.expovariate(per_s)) < until:
        time.sleep(max(0.0, moment - time.perf_counter()))
        sent = time.perf_counter()
        future = pipe.submit({"data": 1}, priority=priority)
        if sent > begin:
            future.add_done_callback(lambda _, sent=sent: took.append((time.perf_counter() - sent) * 1e3))
        pending.append(future)
    for future in pending:
        future.result()


def run(config: dict[str, Any], priority: int, figures: Figures) -> None:
    stop = threading.Event()
    completed = [0] * CALLERS

    def calls(index: int) -> None:
        while not stop.is_set():
            pipe({"data": 0})
            completed[index] += 1

    with hami.pipe(config) as pipe:
        threads = [threading.Thread(target=calls, args=(index,)) for index in range(CALLERS)]
        for thread in threads:
            thread.start()
        begin = time.perf_counter() + WARM_UP_S
        until = begin + MEASURED_S
        urgent = threading.Thread(
            target=urgent_load, args=(pipe, priority, URGENT_PER_S, begin, until, figures.urgent_ms)
        )
        urgent.start()
        time.sleep(max(0.0, begin - time.perf_counter()))
        before, started = sum(completed), time.perf_counter()
        time.sleep(max(0.0, until - time.perf_counter()))
        figures.normal_per_s.append((sum(completed) - before) / (time.perf_counter() - started))
        urgent.join()
        stop.set()
        for thread in threads:
            thread.join()


def compare(rounds: int, variants: dict[str, Callable[[Figures], None]]) -> dict[str, Figures]:
    figures = {name: Figures() for name in variants}
    for _ in range(rounds):
        for name, variant in variants.items():
            variant(figures[name])
    return figures


def show(title: str, device: Device, figures: dict[str, Figures]) -> None:
    fifo = figures["FIFO"]
    print(f"\n{title}: {device.overhead:g} + {device.each:g} ms per item, batches of {device.max}\n")
    print("| variant | urgent p50 | urgent p99 | FIFO p99 / p99 | normal requests/s | ratio to FIFO (min … max) |")
    print("|---|---|---|---|---|---|")
    for name, one in figures.items():
        ratios = [mine / other for mine, other in zip(one.normal_per_s, fifo.normal_per_s, strict=True)]
        p99 = percentile(one.urgent_ms, 0.99)
        print(
            f"| {name} | {percentile(one.urgent_ms, 0.5):.1f} ms | {p99:.1f} ms "
            f"| {percentile(fifo.urgent_ms, 0.99) / p99:.2f} | {statistics.median(one.normal_per_s):.0f} "
            f"| {statistics.median(ratios):.3f} ({min(ratios):.3f} … {max(ratios):.3f}) |"
        )


def longest_wait() -> None:
    """One normal request at a time, beside urgent ones that take 0.95 of a device."""
    device = Device(10, 0, 1)
    waited: list[float] = []
    with hami.pipe(device.config(aging=f"{AGING_S:g}s")) as pipe:
        until = time.perf_counter() + AGING_MEASURED_S
        urgent: list[float] = []
        sender = threading.Thread(target=urgent_load, args=(pipe, 255, 95, 0.0, until, urgent))
        sender.start()
        while time.perf_counter() < until:
            begin = time.perf_counter()
            pipe({"data": 0})
            waited.append((time.perf_counter() - begin) * 1e3)
        sender.join()
    print(f"\naging {AGING_S:g} s, urgent load 0.95: {len(waited)} normal requests, at most {max(waited):.0f} ms each")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    long = Device(8, 8, 4)  # 40 ms; 64 callers fill 16 batches
    show(
        "Urgent requests before a long queue",
        long,
        compare(
            rounds,
            {
                "FIFO": lambda figures: run(long.config(), 0, figures),
                "urgent": lambda figures: run(long.config(), 255, figures),
            },
        ),
    )
    wide = Device(2, 0.6, 64)  # 40.4 ms
    print(f"\nown time {wide.time(1):g} ms; 10 ms hold {int((10 - wide.overhead) / wide.each)} items")
    show(
        'Urgent requests with max_wait = "10ms"',
        wide,
        compare(
            rounds,
            {
                "FIFO": lambda figures: run(wide.config(), 0, figures),
                "urgent": lambda figures: run(wide.config(), 255, figures),
                "max_wait": lambda figures: run(wide.config(max_wait="10ms"), 255, figures),
            },
        ),
    )
    longest_wait()


if __name__ == "__main__":
    main()
