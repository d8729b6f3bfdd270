"""Latency from JPEG bytes to scores in CPU memory with one caller: a pipe against the same steps without HAMi.

The pipe has no guard, so it runs on the caller's thread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import hami
from _manual_pipeline import ManualPipeline
from _workload import (
    CHAIN,
    MODEL,
    PREPROCESSING,
    WITH_SYNC,
    graph_sizes,
    interleaved,
    jpeg_files,
    make_model,
    medians,
    ratio,
    result,
)

CALLS = 100  # of one measurement


def median_latency(call: Callable[[bytes], object], files: list[bytes]) -> float:
    """Return the median time of a call in microseconds."""
    times = []
    for number in range(CALLS):
        started = time.perf_counter()
        call(files[number % len(files)])
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def main() -> None:
    files = jpeg_files(16)
    manual = ManualPipeline(make_model(), graph_sizes(1))
    node = {"backend": f"S[{CHAIN},CpuTensor]", **MODEL, **PREPROCESSING, "graphs": graph_sizes(1), "max": 1}
    with hami.pipe(node) as pipe, hami.pipe({**node, "backend": WITH_SYNC}) as own_thread:
        measurements = {
            "manual": lambda: median_latency(lambda file: manual.run([file], to_cpu=True), files),
            "pipe": lambda: median_latency(lambda file: pipe({"data": file}), files),
            "pipe with SyncTensor": lambda: median_latency(lambda file: own_thread({"data": file}), files),
        }
        interleaved(measurements, 2)  # a warm-up
        samples = interleaved(measurements, 11)
    value = ratio(samples, "pipe", "manual")
    metric = "Median latency from JPEG to ResNet-50 scores, one caller: pipe / manual code"
    result(metric, value, at_most=1.05, median_in_us=medians(samples))


if __name__ == "__main__":
    main()
