"""Is a pipe with 64 callers as fast as the model alone, run over and over at its best batch with CUDA graphs?

The input is on the device already, in both. The raw side has no callers: it is what the GPU can do.
"""

from __future__ import annotations

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


def main() -> None:
    tried = [8, 16, 32, 64, 128, 256] if ON_GPU else [2]
    captured = Captured(module(), tried if ON_GPU else [])
    by_size = {size: raw_throughput(captured, size, SECONDS / 4) for size in tried}
    best = max(by_size, key=by_size.__getitem__)
    say("raw images/s by batch: " + ", ".join(f"{size}: {speed:.0f}" for size, speed in by_size.items()))
    data = torch.rand((CALLERS, 1, 3, SIZE, SIZE), device=DEVICE).to(getattr(torch, MODEL["dtype"]))
    images = [each.contiguous(memory_format=torch.channels_last) for each in data]
    found = {}
    for most, instances in ((16, 3), (32, 2), (32, 3), (64, 1), (64, 2)):
        config = {"backend": "S[TorchModel,SyncTensor]", **MODEL, "graphs": sizes(most), "max": most, "batching": "max"}
        with hami.pipe({**config, "instance_num": instances}) as pipe:
            found[most, instances] = closed_loop(lambda each: pipe({"data": each}), images, CALLERS, SECONDS / 2)
            found[most, instances] = closed_loop(lambda each: pipe({"data": each}), images, CALLERS, SECONDS / 2)
            say(f"max {most}, {instances} instances: {found[most, instances]:.0f} images/s, {pipe.stats()['default']}")
    most, instances = max(found, key=found.__getitem__)
    config = {"backend": "S[TorchModel,SyncTensor]", **MODEL, "graphs": sizes(most), "max": most, "batching": "max"}
    with hami.pipe({**config, "instance_num": instances}) as pipe:
        taken = interleaved(
            {
                "raw": lambda: raw_throughput(captured, best, SECONDS),
                "pipe": lambda: closed_loop(lambda each: pipe({"data": each}), images, CALLERS, SECONDS),
            }
        )
    value = ratio(taken, "pipe", "raw")
    result(
        "ResNet-50 fp16, input on the device, 64 callers / raw CUDA graph at its best batch",
        value,
        at_least=0.95,
        images_per_s=medians(taken),
        best_raw_batch=best,
        pipe=f"max {most}, {instances} instances",
    )


if __name__ == "__main__":
    main()
