"""How much device memory do 200 cycles of loading a model, running it and closing the pipe leave behind?"""

from __future__ import annotations

import os
import resource

import hami
import torch
from _work import DEVICE, ON_GPU, result, say, sizes

CYCLES = int(os.environ.get("HAMI_BENCH_CYCLES", "200"))
MEGABYTE = 1e6


class Small(torch.nn.Sequential):
    """Convolutions and a matrix product, 33 MB of weights: cuDNN and cuBLAS both have something to keep."""

    def __init__(self) -> None:
        convolutions = [torch.nn.Conv2d(3, 64, 3, stride=2), *(torch.nn.Conv2d(64, 64, 3, stride=2) for _ in range(3))]
        super().__init__(*convolutions, torch.nn.Flatten(), torch.nn.Linear(64 * 10 * 10, 2500))


def cycle() -> None:
    node = {
        "backend": "S[GpuTensor,TorchModel,SyncTensor]",
        "factory": "is_the_memory_of_a_closed_pipe_returned:Small",
        "dtype": "float16" if ON_GPU else "float32",
        "channels_last": True,
        "row_shape": [3, 176, 176],
        "graphs": sizes(4),
        "max": 4,
        "instance_num": 2,
        "device": DEVICE,
    }
    with hami.pipe(node) as pipe:
        pipe([{"data": torch.zeros(1, 3, 176, 176)} for _ in range(8)])


def used() -> float:
    """Device memory that is gone, in MB: what torch has reserved and what libraries took beside it."""
    if not ON_GPU:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return (total - free) / MEGABYTE


def main() -> None:
    for _ in range(5):
        cycle()
    before = used()
    say(f"after 5 cycles: {before:.1f} MB in use")
    seen = []
    for number in range(CYCLES):
        cycle()
        if number % 20 == 19:
            seen.append(round(used(), 1))
            say(f"after {number + 1} more: {seen[-1]:.1f} MB")
    grown = used() - before
    question = f"device memory left after {CYCLES} cycles of load, run and close, in MB"
    result(question, grown, at_most=16, MB_in_use=[round(before, 1), *seen])


if __name__ == "__main__":
    main()
