"""Measures the processor time that `Shadow` of a tenth of the requests adds to a backend A, with a free B.

Usage: python shadow_cost.py [ROUNDS], with hami-tools. For each size of the array in a request, both run in turn in
every round; a figure is the median over the rounds of the ratio within a round, with the smallest and the largest.
"""

from __future__ import annotations

import resource
import sys
import time
from statistics import median
from typing import Any

import hami
import numpy as np

SECONDS = 1.0  # of a round; the budget is one of time
SIZES = {"a text": 0, "an array of 600 kB": 602_112, "an array of 6 MB": 6_220_800}
STEPS = (1, 40)  # of A, each about 0.05 ms


@hami.register
class BenchWork(hami.Backend):
    """Multiplies matrices on one thread, as long as it is asked to."""

    steps: int = 1

    def init(self, options: Any) -> None:
        self._matrix = np.random.default_rng(0).standard_normal((32, 32))

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            for _ in range(self.steps * 16):
                result = self._matrix @ self._matrix
            item["result"] = result


@hami.register
class BenchFree(hami.Backend):
    """Answers at no cost."""

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = None


def used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def seconds(pipe: hami.Pipe, data: Any) -> float:
    requests, begun, until = 0, used(), time.monotonic() + SECONDS
    while time.monotonic() < until:
        pipe({"data": data})
        requests += 1
    return (used() - begun) / requests


def main(rounds: int) -> None:
    for steps in STEPS:
        plain = {"backend": "BenchWork", "steps": steps}
        shadowed = {
            "a": {"backend": "Shadow(b=free)[BenchWork]", "steps": steps},
            "free": {"backend": "BenchFree"},
            "dag_entrypoint": "Forward[node.a]",
        }
        for name, size in SIZES.items():
            data = np.ones(size, np.uint8) if size else "to be or not"
            with hami.pipe(plain) as a, hami.pipe(shadowed) as b:
                pairs = [(seconds(a, data), seconds(b, data)) for _ in range(rounds)]
                counters = b.stats()["a"].counters
            ratios = [other / one for one, other in pairs]
            alone = median(one for one, _ in pairs) * 1e3
            print(
                f"A of {alone:.2f} ms, {name}: x {median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}), "
                f"{counters.get('compared', 0)} compared and {counters.get('not_compared', 0)} not"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
