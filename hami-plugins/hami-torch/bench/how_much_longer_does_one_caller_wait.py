"""JPEG bytes to scores in CPU memory, one caller: how long does a call of a pipe take beside the same steps by hand?

The pipe has no guard, so it runs on the thread of its caller.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import hami
from _by_hand import ByHand
from _work import MODEL, PREPARED, STEPS, WHOLE, interleaved, medians, module, pictures, ratio, result, sizes

CALLS = 100  # of one turn


def p50(call: Callable[[bytes], object], files: list[bytes]) -> float:
    """The median time of a call in microseconds."""
    times = []
    for number in range(CALLS):
        started = time.perf_counter()
        call(files[number % len(files)])
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def main() -> None:
    files = pictures(16)
    by_hand = ByHand(module(), sizes(1))
    node = {"backend": f"S[{STEPS},CpuTensor]", **MODEL, **PREPARED, "graphs": sizes(1), "max": 1}
    with hami.pipe(node) as pipe, hami.pipe({**node, "backend": WHOLE}) as on_a_thread:
        measures = {
            "by hand": lambda: p50(lambda file: by_hand.run([file], to_cpu=True), files),
            "pipe": lambda: p50(lambda file: pipe({"data": file}), files),
            "pipe with SyncTensor, on its own thread": lambda: p50(lambda file: on_a_thread({"data": file}), files),
        }
        interleaved(measures, 2)  # a warm-up
        taken = interleaved(measures, 11)
    value = ratio(taken, "pipe", "by hand")
    question = "JPEG bytes to ResNet-50 scores, one caller, p50 / p50 of the hand-written code"
    result(question, value, at_most=1.05, p50_in_us=medians(taken))


if __name__ == "__main__":
    main()
