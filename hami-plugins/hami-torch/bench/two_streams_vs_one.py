"""Throughput from JPEG bytes to scores with 64 callers: two instances, each with its own stream, against one."""

from __future__ import annotations

import hami
from _workload import (
    MODEL,
    PREPROCESSING,
    SECONDS,
    WITH_SYNC,
    closed_loop,
    graph_sizes,
    interleaved,
    jpeg_files,
    medians,
    ratio,
    result,
)

MAX_SIZE = 32


def main() -> None:
    files = jpeg_files()
    node = {"backend": WITH_SYNC, **MODEL, **PREPROCESSING, "graphs": graph_sizes(MAX_SIZE), "max": MAX_SIZE}
    node |= {"batching": "greedy"}
    with hami.pipe({**node, "instance_num": 1}) as one, hami.pipe({**node, "instance_num": 2}) as two:
        measurements = {
            "one": lambda: closed_loop(lambda file: one({"data": file}), files, 64, SECONDS),
            "two": lambda: closed_loop(lambda file: two({"data": file}), files, 64, SECONDS),
        }
        interleaved(measurements, 1)  # a warm-up
        samples = interleaved(measurements)
    value = ratio(samples, "two", "one")
    metric = "Throughput from JPEG to scores, 64 callers: SyncTensor with two instances / with one"
    result(metric, value, at_least=1.0, images_per_s=medians(samples))


if __name__ == "__main__":
    main()
