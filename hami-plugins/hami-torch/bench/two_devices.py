"""Throughput of one process with two GPUs divided by that with one: a pipe for each GPU, and one pipe for both.

There are twice as many callers for two GPUs. They are threads: 64 with one file at a time, or 4 with lists of 64
files. Without a second GPU the program says so and measures nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import hami
import torch
from _workload import (
    MODEL,
    PREPARED,
    PREPROCESSING,
    SECONDS,
    SIZE,
    WITH_SYNC,
    closed_loop,
    graph_sizes,
    interleaved,
    jpeg_files,
    medians,
    ratio,
    result,
)

CALLERS = 64
LISTS, LIST_SIZE = 4, 64
CONFIGS: dict[str, dict[str, Any]] = {
    "preprocessing": {"backend": f"S[{PREPARED},SyncTensor]", "width": SIZE, "height": SIZE},
    "JPEG to scores": {"backend": WITH_SYNC, **MODEL, **PREPROCESSING, "graphs": graph_sizes(32)},
}


INSTANCES = 6  # of the pipe for both GPUs, three for each: as many as a node with a model has on one


def make_pipe(name: str, device: int) -> hami.Pipe:
    return hami.pipe({**CONFIGS[name], "device": f"cuda:{device}"})


def of_one(pipes: list[hami.Pipe], files: list[bytes]) -> Callable[[tuple[int, int]], Any]:
    """Return a call with one file; its argument is the number of a caller and of its call."""
    return lambda turn: pipes[turn[0] % len(pipes)]({"data": files[sum(turn) % len(files)]})


def of_list(pipes: list[hami.Pipe], files: list[bytes]) -> Callable[[tuple[int, int]], Any]:
    return lambda turn: pipes[turn[0] % len(pipes)]([{"data": file} for file in files])


def images_per_s(
    make: Callable[..., Callable[[tuple[int, int]], Any]],
    pipes: list[hami.Pipe],
    files: list[bytes],
    callers: int,
    images: int,
) -> float:
    """Return images per second of so many threads, which share the pipes; each call has so many images."""
    # closed_loop gives caller n the data from n on, so that the first part of a pair tells callers apart.
    return images * closed_loop(make(pipes, files), [(number, 0) for number in range(callers)], callers, SECONDS)


def compare(name: str, files: list[bytes]) -> None:
    each = [make_pipe(name, device) for device in (0, 1)]
    both = hami.pipe({**CONFIGS[name], "device": "cuda:*", "instance_num": INSTANCES})
    sides = {"one GPU": each[:1], "two GPUs": each, "one pipe": [both]}
    try:
        for form, make, callers, images in (
            (f"{CALLERS} callers for each", of_one, CALLERS, 1),
            (f"{LISTS} callers of lists of {LIST_SIZE} for each", of_list, LISTS, LIST_SIZE),
        ):
            loops = {
                side: partial(images_per_s, make, pipes, files, callers if side == "one GPU" else 2 * callers, images)
                for side, pipes in sides.items()
            }
            interleaved(loops, 3)  # they learn
            samples = interleaved(loops)
            for side, what in (("two GPUs", "two GPUs / one"), ("one pipe", "one pipe on cuda:* / one GPU")):
                result(
                    f"{name}, one process, {form}: {what}",
                    ratio(samples, side, "one GPU"),
                    at_least=1.9,
                    images_per_s=medians(samples),
                )
    finally:
        for pipe in (*each, both):
            pipe.close()


def check_results(files: list[bytes]) -> None:
    """Compare the scores of both GPUs, which the same weights give."""
    scores = []
    for device in (0, 1):
        torch.manual_seed(0)
        with make_pipe("JPEG to scores", device) as pipe:
            scores.append(
                torch.cat([each["result"].cpu().float() for each in pipe([{"data": file} for file in files])])
            )
    result(
        "Largest difference of the scores of the second GPU to the first, part of the largest score",
        float((scores[0] - scores[1]).abs().max() / scores[0].abs().max()),
        at_most=0.01,
    )


def main() -> None:
    if torch.cuda.device_count() < 2:
        sys.exit(f"two_devices needs two GPUs; torch finds {torch.cuda.device_count()}")
    files = jpeg_files(LIST_SIZE)
    check_results(files)
    for name in CONFIGS:
        compare(name, files)


if __name__ == "__main__":
    main()
