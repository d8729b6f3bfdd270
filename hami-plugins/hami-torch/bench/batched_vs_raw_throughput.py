"""Throughput of a pipe with 64 callers against the model alone, run repeatedly with CUDA graphs at its best batch size.

In both cases the input is on the device and has random values: with zeros a GPU draws less power and clocks higher. The
model alone has no callers, so it can use larger batches than 64 callers of one image each can fill. Therefore callers
of four images each are measured too, and the result includes the raw throughput at the largest batch that the callers
can fill.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any, NamedTuple

import hami
import torch
from _workload import (
    DEVICE,
    MODEL,
    ON_GPU,
    SECONDS,
    SIZE,
    CapturedModel,
    closed_loop,
    closed_loop_of_tasks,
    graph_sizes,
    interleaved,
    log,
    make_model,
    medians,
    ratio,
    raw_throughput,
    result,
)

CALLERS = 64


class Setting(NamedTuple):
    """Maximum requests per batch, instances, and batching timeout in ms; None selects adaptive batching."""

    max_requests: int
    instances: int
    timeout_ms: float | None

    def __str__(self) -> str:
        batching = "adaptive" if self.timeout_ms is None else f"timeout {self.timeout_ms} ms"
        return f"max {self.max_requests} requests, {self.instances} instances, {batching}"


# By number of images per request.
SETTINGS = {
    1: (Setting(32, 2, None), Setting(24, 3, None), Setting(32, 2, 3.0), Setting(16, 4, 3.0)),
    4: (Setting(16, 3, None), Setting(16, 3, 3.0)),
}


def make_pipe(setting: Setting, rows: int) -> hami.Pipe:
    captured = [size * rows for size in graph_sizes(setting.max_requests)]
    node: dict[str, Any] = {"backend": "S[TorchModel,SyncTensor]", **MODEL, "instance_num": setting.instances}
    if setting.timeout_ms is not None:
        node |= {"batching": "greedy", "batching_timeout": setting.timeout_ms}
    return hami.pipe({**node, "graphs": captured, "max": setting.max_requests * rows})


def loops(pipe: hami.Pipe, data: list[torch.Tensor], rows: int) -> dict[str, Any]:
    """Return the callers as threads and as asyncio tasks; each function returns images per second."""
    request = lambda each: {"data": each, "request_size": rows}  # noqa: E731
    return {
        "threads": lambda seconds: rows * closed_loop(lambda each: pipe(request(each)), data, CALLERS, seconds),
        "tasks": lambda seconds: (
            rows * closed_loop_of_tasks(lambda each: pipe.acall(request(each)), data, CALLERS, seconds)
        ),
    }


def random_images(count: int) -> torch.Tensor:
    """Return random images on the device, in the format of the model."""
    images = torch.rand((count, 3, SIZE, SIZE), device=DEVICE).to(getattr(torch, MODEL["dtype"]))
    return images.contiguous(memory_format=torch.channels_last)


def measure(captured: CapturedModel, best: int, rows: int) -> None:
    """Find the best setting for 64 callers of `rows` images each, and compare it with the raw throughput."""
    largest = min(CALLERS * rows, max(captured.graphs, default=best))
    data = [random_images(rows) for _ in range(CALLERS)]
    found: dict[tuple[Setting, str], float] = {}
    for setting in SETTINGS[rows]:
        with make_pipe(setting, rows) as pipe:
            for name, loop in loops(pipe, data, rows).items():
                loop(SECONDS / 4)
                found[setting, name] = statistics.median(loop(SECONDS / 4) for _ in range(3))
                log(f"{setting}, {name}, {rows} images per request: {found[setting, name]:.0f} images/s")
            stats = pipe.stats()["default"]
            log(f"  {stats.batch_items / max(1, stats.batches):.1f} images per batch, {stats.as_dict()}")
    setting, name = max(found, key=found.__getitem__)
    with make_pipe(setting, rows) as pipe:
        loop = loops(pipe, data, rows)[name]
        raw = {f"raw of {size}": partial(raw_throughput, captured, size, SECONDS) for size in (best, largest)}
        samples = interleaved({**raw, "pipe": partial(loop, SECONDS)})
    result(
        f"Throughput of ResNet-50 fp16, 64 callers of {rows} image(s) each: pipe / CUDA graph at its best batch size",
        ratio(samples, "pipe", f"raw of {best}"),
        at_least=0.95,
        images_per_s=medians(samples),
        ratio_at_the_largest_batch_the_callers_fill=round(ratio(samples, "pipe", f"raw of {largest}"), 4),
        pipe=f"{setting}, callers are {name}",
    )


def main() -> None:
    batch_sizes = [16, 32, 64, 128, 256] if ON_GPU else [2]
    captured = CapturedModel(make_model(), batch_sizes if ON_GPU else [])
    captured.input.copy_(random_images(len(captured.input)))
    by_size = {size: raw_throughput(captured, size, SECONDS / 4) for size in batch_sizes}
    log("raw images/s by batch size: " + ", ".join(f"{size}: {rate:.0f}" for size, rate in by_size.items()))
    best = max(by_size, key=by_size.__getitem__)
    for rows in SETTINGS:
        measure(captured, best, rows)


if __name__ == "__main__":
    main()
