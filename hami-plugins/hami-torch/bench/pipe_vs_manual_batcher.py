"""Throughput from JPEG bytes to scores with 64 callers: a pipe against a batcher that is written and tuned manually.

The callers are threads in the first part and asyncio tasks in the second; each part selects the best settings of both
sides. All settings are measured alternately, then the two best of each side again: the time that threads need to wake
up changes within seconds, and the best setting changes with it. A pipe without settings is measured with them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import hami
from _manual_pipeline import Batcher, ManualPipeline
from _workload import (
    MODEL,
    ON_GPU,
    PREPROCESSING,
    SECONDS,
    WITH_SYNC,
    closed_loop,
    closed_loop_of_tasks,
    graph_sizes,
    interleaved,
    jpeg_files,
    log,
    make_model,
    medians,
    ratio,
    result,
)

CALLERS = 64


class Setting(NamedTuple):
    """Maximum batch size, concurrent batches, and batching timeout in ms; both sides have the same choices."""

    max_size: int
    concurrency: int
    timeout_ms: float

    def __str__(self) -> str:
        return f"max {self.max_size}, {self.concurrency} concurrent, timeout {self.timeout_ms} ms"


SETTINGS = (Setting(12, 5, 4.0), Setting(16, 4, 4.0), Setting(20, 3, 4.0), Setting(24, 3, 4.0), Setting(32, 2, 4.0))

Loop = Callable[[float], float]  # runs for so many seconds and returns images per second
SIDES = ("manual", "pipe")
DEFAULT = "default"


def make_batcher(setting: Setting) -> Batcher:
    model = make_model()
    workers = [ManualPipeline(model, graph_sizes(setting.max_size)) for _ in range(setting.concurrency)]
    return Batcher(workers, setting.max_size, setting.timeout_ms)


def make_pipe(setting: Setting) -> hami.Pipe:
    node = {"backend": WITH_SYNC, **MODEL, **PREPROCESSING, "graphs": graph_sizes(setting.max_size)}
    node |= {"max": setting.max_size, "instance_num": setting.concurrency}
    node |= {"batching": "greedy", "batching_timeout": setting.timeout_ms}
    return hami.pipe(node)


def make_default_pipe() -> hami.Pipe:
    """Return a pipe without settings of the scheduler; the graphs belong to the model."""
    return hami.pipe({"backend": WITH_SYNC, **MODEL, **PREPROCESSING, "graphs": graph_sizes(32)})


def loops_of_batcher(batcher: Batcher, files: list[bytes]) -> dict[str, Loop]:
    return {
        "threads": partial(closed_loop, batcher, files, CALLERS),
        "tasks": partial(closed_loop_of_tasks, batcher.acall, files, CALLERS),
    }


def loops_of_pipe(pipe: hami.Pipe, files: list[bytes]) -> dict[str, Loop]:
    return {
        "threads": partial(closed_loop, lambda file: pipe({"data": file}), files, CALLERS),
        "tasks": partial(closed_loop_of_tasks, lambda file: pipe.acall({"data": file}), files, CALLERS),
    }


def best(samples: dict[str, list[float]], side: str, count: int) -> list[str]:
    """Return the `count` fastest settings of a side, by their medians."""
    of_side = [name for name in samples if name.startswith(side)]
    return sorted(of_side, key=lambda name: statistics.median(samples[name]), reverse=True)[:count]


def compare(kind: str, loops: dict[str, Loop]) -> None:
    log(f"callers are {kind}")
    for loop in loops.values():
        loop(SECONDS / 4)  # a warm-up
    trials = interleaved({name: partial(loop, SECONDS / 4) for name, loop in loops.items()}, rounds=3)
    finalists = [name for side in SIDES for name in best(trials, side, 2)]
    loops[DEFAULT](SECONDS)  # it learns
    samples = interleaved({name: partial(loops[name], SECONDS) for name in (*finalists, DEFAULT)})
    manual, pipe = (best(samples, side, 1)[0] for side in SIDES)
    result(
        f"Throughput from JPEG to ResNet-50 scores, 64 callers ({kind}): pipe / manual batcher, at best settings",
        ratio(samples, pipe, manual),
        at_least=1.0,
        compared=f"{pipe} / {manual}",
        images_per_s=medians(samples),
    )
    result(
        f"Throughput from JPEG to ResNet-50 scores, 64 callers ({kind}): default configuration / best settings",
        ratio(samples, DEFAULT, pipe),
        at_least=0.95,
        compared=f"{DEFAULT} / {pipe}",
        images_per_s=medians(samples),
    )


def main() -> None:
    files = jpeg_files()
    log(f"{len(files)} files of {sum(map(len, files)) / len(files) / 1000:.0f} kB")
    loops: dict[str, dict[str, Loop]] = {}
    with ExitStack() as stack:
        for setting in SETTINGS if ON_GPU else SETTINGS[:2]:
            batcher = make_batcher(setting)
            stack.callback(batcher.close)
            loops[f"manual: {setting}"] = loops_of_batcher(batcher, files)
            loops[f"pipe: {setting}"] = loops_of_pipe(stack.enter_context(make_pipe(setting)), files)
        loops[DEFAULT] = loops_of_pipe(stack.enter_context(make_default_pipe()), files)
        for kind in ("threads", "tasks"):
            compare(kind, {name: each[kind] for name, each in loops.items()})


if __name__ == "__main__":
    main()
