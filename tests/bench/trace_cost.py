"""Measure what a timeline costs: processor time of a request with a trace, divided by that without one.

    python tests/bench/trace_cost.py [ROUNDS] [SECONDS]

Each round measures every variant once, in an order that changes: no trace, a trace into a file, and the last 10 s in
memory. The ratio is that to "no trace" of the same round. `jpeg` decodes and resizes a photograph; `inline` and
`worker` do nothing, on the thread of the caller and in Python on a thread of the pipe: there a trace costs most.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import hami
from _measure import about_hami, about_this_machine

CLIENTS = 4
SETTINGS: dict[str, dict[str, float] | None] = {"no trace": None, "trace": {}, "last 10s": {"last": 10.0, "slow": 60.0}}


class Worker(hami.Backend):
    """A backend with a thread of its own."""

    thread = "dedicated"

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = item["data"]


def photograph() -> bytes:
    import cv2
    import numpy as np

    small = np.random.default_rng(0).integers(0, 255, (24, 32, 3), np.uint8)
    return bytes(cv2.imencode(".jpg", cv2.resize(small, (1024, 768)))[1])


def cost(pipe: hami.Pipe, data: Any, seconds: float, setting: dict[str, float] | None, file: Path) -> float:
    """Return the processor time of all threads, the writer of the trace included, in microseconds per request."""
    began = time.process_time()
    with contextlib.nullcontext() if setting is None else pipe.trace(file, **setting):
        found = pipe._core.load([{"data": data}], clients=CLIENTS, duration=seconds)
    return float((time.process_time() - began) / found["completed"] * 1e6)


def measure(name: str, source: Any, data: Any, rounds: int, seconds: float) -> None:
    found: dict[str, list[float]] = {variant: [] for variant in SETTINGS}
    with tempfile.TemporaryDirectory() as folder, hami.pipe(source) as pipe:
        cost(pipe, data, seconds, None, Path())
        for _ in range(rounds):
            for variant in random.sample(list(SETTINGS), len(SETTINGS)):
                found[variant].append(cost(pipe, data, seconds, SETTINGS[variant], Path(folder) / "t.pftrace"))
    for variant, values in found.items():
        ratios = sorted(value / base for value, base in zip(values, found["no trace"], strict=True))
        print(
            f"{name:7} {variant:9} {statistics.median(values):10.2f} µs"
            f"   {statistics.median(ratios):.3f} ({ratios[0]:.3f} … {ratios[-1]:.3f})"
        )


def main(rounds: int = 15, seconds: float = 1.0) -> None:
    print(f"{about_hami()}; {about_this_machine()}; {CLIENTS} clients, {rounds} rounds of {seconds:g} s")
    hami.register("BenchTraceWorker")(Worker)
    measure("jpeg", {"backend": "S[DecodeMat,ResizeMat(224,224)]", "max": 4}, photograph(), rounds, seconds)
    measure("inline", "S[Identity,Identity]", 1, rounds, seconds)
    measure("worker", {"backend": "BenchTraceWorker"}, 1, rounds, seconds)


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, float), sys.argv[1:], strict=False)))
