"""Device memory that 200 cycles of loading a model, running it and closing the pipe leave behind."""

from __future__ import annotations

import os
import resource

import hami
import torch
from _workload import DEVICE, ON_GPU, graph_sizes, log, result

import hami_torch

CYCLES = int(os.environ.get("HAMI_BENCH_CYCLES", "200"))
MEGABYTE = 1e6
hami_torch.allow_factory("memory_after_close")


class Small(torch.nn.Sequential):
    """Convolutions and a matrix product with 33 MB of weights, so that both cuDNN and cuBLAS allocate memory."""

    def __init__(self) -> None:
        convolutions = [torch.nn.Conv2d(3, 64, 3, stride=2), *(torch.nn.Conv2d(64, 64, 3, stride=2) for _ in range(3))]
        super().__init__(*convolutions, torch.nn.Flatten(), torch.nn.Linear(64 * 10 * 10, 2500))


def cycle() -> None:
    node = {
        "backend": "S[GpuTensor,TorchModel,SyncTensor]",
        "factory": "memory_after_close:Small",
        "dtype": "float16" if ON_GPU else "float32",
        "channels_last": True,
        "row_shape": [3, 176, 176],
        "graphs": graph_sizes(4),
        "max": 4,
        "instance_num": 2,
        "device": DEVICE,
    }
    with hami.pipe(node) as pipe:
        pipe([{"data": torch.zeros(1, 3, 176, 176)} for _ in range(8)])


def used() -> float:
    """Return the device memory in use, in MB, by torch and by the libraries below it."""
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
    log(f"after 5 cycles: {before:.1f} MB in use")
    history = []
    for number in range(CYCLES):
        cycle()
        if number % 20 == 19:
            history.append(round(used(), 1))
            log(f"after {number + 1} more: {history[-1]:.1f} MB")
    grown = used() - before
    metric = f"Device memory in MB that {CYCLES} cycles of load, run and close leave behind"
    result(metric, grown, at_most=16, MB_in_use=[round(before, 1), *history])


if __name__ == "__main__":
    main()
