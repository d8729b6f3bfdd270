"""Is a pipe with 64 callers as fast as the model alone, run over and over at its best batch with CUDA graphs?

The input is on the device already, in both, and is of the same kind: a GPU multiplies zeros with less power, so with a
higher clock. The raw side has no callers: it is what the GPU can do, at batches that are larger than what 64 callers of
one image each can fill; so callers of four images each are measured too, and the raw throughput at the largest batch
that the callers can fill stands beside the best.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any, NamedTuple

import hami
import torch
from _work import (
    DEVICE,
    MODEL,
    ON_GPU,
    SECONDS,
    SIZE,
    Captured,
    closed_loop,
    closed_loop_of_tasks,
    interleaved,
    medians,
    module,
    ratio,
    raw_throughput,
    result,
    say,
    sizes,
)

CALLERS = 64


class Setting(NamedTuple):
    """Most requests at once, instances, and how many ms one waits for more; None: the sizes of batches are learned."""

    most: int
    instances: int
    wait: float | None

    def __str__(self) -> str:
        batches = "sizes learned" if self.wait is None else f"wait {self.wait} ms"
        return f"max {self.most} requests, {self.instances} instances, {batches}"


# By images a request.
SETTINGS = {
    1: (Setting(32, 2, None), Setting(24, 3, None), Setting(32, 2, 3.0), Setting(16, 4, 3.0)),
    4: (Setting(16, 3, None), Setting(16, 3, 3.0)),
}


def make_pipe(setting: Setting, rows: int) -> hami.Pipe:
    captured = [size * rows for size in sizes(setting.most)]
    node: dict[str, Any] = {"backend": "S[TorchModel,SyncTensor]", **MODEL, "instance_num": setting.instances}
    if setting.wait is not None:
        node |= {"batching": "max", "batching_timeout": setting.wait}
    return hami.pipe({**node, "graphs": captured, "max": setting.most * rows})


def loops(pipe: hami.Pipe, data: list[torch.Tensor], rows: int) -> dict[str, Any]:
    """The callers as threads, and as tasks of one thread; each gives images a second."""
    request = lambda each: {"data": each, "request_size": rows}  # noqa: E731
    return {
        "threads": lambda seconds: rows * closed_loop(lambda each: pipe(request(each)), data, CALLERS, seconds),
        "tasks": lambda seconds: (
            rows * closed_loop_of_tasks(lambda each: pipe.acall(request(each)), data, CALLERS, seconds)
        ),
    }


def images(count: int) -> torch.Tensor:
    """So many images on the device, as the model takes them, each another one."""
    made = torch.rand((count, 3, SIZE, SIZE), device=DEVICE).to(getattr(torch, MODEL["dtype"]))
    return made.contiguous(memory_format=torch.channels_last)


def measure(captured: Captured, best: int, rows: int) -> None:
    """Find the best setting for 64 callers of so many images each, and compare it with the raw throughput."""
    filled = min(CALLERS * rows, max(captured.graphs, default=best))
    data = [images(rows) for _ in range(CALLERS)]
    found: dict[tuple[Setting, str], float] = {}
    for setting in SETTINGS[rows]:
        with make_pipe(setting, rows) as pipe:
            for name, loop in loops(pipe, data, rows).items():
                loop(SECONDS / 4)
                found[setting, name] = statistics.median(loop(SECONDS / 4) for _ in range(3))
                say(f"{setting}, {name}, {rows} a request: {found[setting, name]:.0f} images/s")
            counts = pipe.stats()["default"]
            say(f"  {counts['items'] / max(1, counts['batches']):.1f} images a batch, {counts}")
    setting, name = max(found, key=found.__getitem__)
    with make_pipe(setting, rows) as pipe:
        loop = loops(pipe, data, rows)[name]
        raw = {f"raw of {size}": partial(raw_throughput, captured, size, SECONDS) for size in (best, filled)}
        taken = interleaved({**raw, "pipe": partial(loop, SECONDS)})
    result(
        f"ResNet-50 fp16, input on the device, 64 callers of {rows} image(s) each / raw CUDA graph at its best batch",
        ratio(taken, "pipe", f"raw of {best}"),
        at_least=0.95,
        images_per_s=medians(taken),
        ratio_to_raw_at_the_largest_batch_that_the_callers_fill=round(ratio(taken, "pipe", f"raw of {filled}"), 4),
        pipe=f"{setting}, callers are {name}",
    )


def main() -> None:
    tried = [16, 32, 64, 128, 256] if ON_GPU else [2]
    captured = Captured(module(), tried if ON_GPU else [])
    captured.input.copy_(images(len(captured.input)))
    by_size = {size: raw_throughput(captured, size, SECONDS / 4) for size in tried}
    say("raw images/s by batch: " + ", ".join(f"{size}: {speed:.0f}" for size, speed in by_size.items()))
    best = max(by_size, key=by_size.__getitem__)
    for rows in SETTINGS:
        measure(captured, best, rows)


if __name__ == "__main__":
    main()
