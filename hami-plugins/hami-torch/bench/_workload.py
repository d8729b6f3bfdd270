"""Shared by the benchmarks: the model, the images, callers in a closed loop, and the output of results."""

from __future__ import annotations

import asyncio
import io
import json
import os
import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

import hami_torch

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SIZE = 224
SECONDS = float(os.environ.get("HAMI_BENCH_SECONDS", "2"))  # of one measurement
ROUNDS = int(os.environ.get("HAMI_BENCH_ROUNDS", "5"))
# "cpu" only checks that the scripts run; the figures are then meaningless. The device number is explicit, because
# torchvision recreates its decoder, in about 0.3 s, each time "cuda" follows "cuda:0".
DEVICE = os.environ.get("HAMI_BENCH_DEVICE", "cuda:0")
ON_GPU = DEVICE != "cpu"

FACTORY = os.environ.get("HAMI_BENCH_FACTORY", "torchvision.models:resnet50")
hami_torch.allow_factory(FACTORY)
MODEL: dict[str, Any] = {
    "factory": FACTORY,
    "dtype": "float16" if ON_GPU else "float32",
    "channels_last": True,
    "row_shape": [3, SIZE, SIZE],
    "device": DEVICE,
}
# Images are prepared by hami-cuda, on the CPU by hami-image.
PREPARED = "DecodeTensor,ResizeTensor(rounded=false)" if ON_GPU else "DecodeMat,ResizeMat,Mat2Tensor"
CHAIN = f"{PREPARED},TorchModel"
WITH_SYNC = f"S[{CHAIN},SyncTensor]"
PREPROCESSING: dict[str, Any] = {"width": SIZE, "height": SIZE}
# The normalization is part of the CUDA graphs, in the pipe as in the manual pipeline.
PREPROCESSING |= {"input_mean": MEAN, "input_std": STD, "input_scale": 1 / 255}


def graph_sizes(max_size: int) -> list[int]:
    """Return the batch sizes to capture; they are close to each other, so that there is little padding."""
    return [size for size in (1, 2, 4, 6, *range(8, 65, 4)) if size <= max_size] if ON_GPU else []


def jpeg_files(count: int = 64) -> list[bytes]:
    """Return different JPEG files of 500 x 375 pixels."""
    random = np.random.default_rng(0)
    files = []
    for _ in range(count):
        coarse = Image.fromarray(random.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        noise = random.integers(-12, 13, (375, 500, 3))
        pixels = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC)).astype(int) + noise
        file = io.BytesIO()
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=85)
        files.append(file.getvalue())
    return files


def make_model() -> torch.nn.Module:
    """Return the model as TorchModel makes it."""
    import importlib

    module_name, _, name = MODEL["factory"].partition(":")
    model = getattr(importlib.import_module(module_name), name)().eval().to(DEVICE)
    return model.to(getattr(torch, MODEL["dtype"])).to(memory_format=torch.channels_last)


class Normalized(torch.nn.Module):
    """The model with normalization; the input is float32 pixels, 0 … 255."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        mean, std = torch.tensor(MEAN), torch.tensor(STD)
        self.factor = (1 / 255 / std).reshape(-1, 1, 1).to(DEVICE)
        self.offset = (-mean / std).reshape(-1, 1, 1).to(DEVICE)
        self.dtype = getattr(torch, MODEL["dtype"])

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        scaled = torch.empty_like(pixels, dtype=self.dtype)
        return self.model(torch.addcmul(self.offset, pixels, self.factor, out=scaled))


class CapturedModel:
    """The model, captured without HAMi as a CUDA graph for each batch size."""

    def __init__(self, model: torch.nn.Module, batch_sizes: Sequence[int], dtype: str = MODEL["dtype"]) -> None:
        self.model = model
        max_size = max(batch_sizes, default=64)
        self.input = torch.zeros((max_size, 3, SIZE, SIZE), dtype=getattr(torch, dtype), device=DEVICE)
        self.input = self.input.contiguous(memory_format=torch.channels_last)
        self.graphs: dict[int, tuple[Any, torch.Tensor]] = {}
        self.stream = torch.cuda.Stream() if ON_GPU else None
        pool = None
        with torch.no_grad():
            for size in sorted(batch_sizes, reverse=True):
                with torch.cuda.stream(self.stream):
                    for _ in range(3):
                        model(self.input[:size])
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool, stream=self.stream):
                    output = model(self.input[:size])
                pool = pool or graph.pool()
                self.graphs[size] = (graph, output)

    def run(self, rows: int) -> torch.Tensor:
        """Run on the first `rows` rows of the input, on the current stream."""
        if not self.graphs:
            with torch.no_grad():
                return self.model(self.input[:rows])
        size = min(size for size in self.graphs if size >= rows)
        graph, output = self.graphs[size]
        graph.replay()
        return output[:rows]


def raw_throughput(captured: CapturedModel, size: int, seconds: float) -> float:
    """Return images per second for one batch size, without callers: run after run, input on the device."""
    started, runs = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        for _ in range(10):
            captured.run(size)
        runs += 10
        if ON_GPU:
            torch.cuda.synchronize()
    return runs * size / (time.perf_counter() - started)


def closed_loop(call: Callable[[Any], Any], data: Sequence[Any], callers: int, seconds: float) -> float:
    """Return calls per second of `callers` threads; each calls again as soon as it has its result."""
    done, errors = [0] * callers, []
    start = threading.Barrier(callers + 1)
    stop = threading.Event()

    def call_repeatedly(number: int) -> None:
        start.wait()
        try:
            while not stop.is_set():
                call(data[(number + done[number]) % len(data)])
                done[number] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call_repeatedly, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    start.wait()
    started = time.perf_counter()
    stop.wait(seconds)
    count, elapsed = sum(done), time.perf_counter() - started
    stop.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return count / elapsed


def closed_loop_of_tasks(
    call: Callable[[Any], Awaitable[Any]], data: Sequence[Any], callers: int, seconds: float
) -> float:
    """Return calls per second of `callers` asyncio tasks; each calls again as soon as it has its result."""

    async def main() -> float:
        done = [0] * callers
        started = time.perf_counter()

        async def call_repeatedly(number: int) -> None:
            while time.perf_counter() - started < seconds:
                await call(data[(number + done[number]) % len(data)])
                done[number] += 1

        await asyncio.gather(*(call_repeatedly(number) for number in range(callers)))
        return sum(done) / (time.perf_counter() - started)

    return asyncio.run(main())


def interleaved(measurements: dict[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Run each measurement once per round, so that changes of the machine affect all of them alike."""
    samples: dict[str, list[float]] = {name: [] for name in measurements}
    for number in range(rounds):
        for name, measurement in measurements.items():
            samples[name].append(measurement())
        log(f"round {number + 1}: " + ", ".join(f"{name} {values[-1]:.5g}" for name, values in samples.items()))
    return samples


def ratio(samples: dict[str, list[float]], of: str, to: str) -> float:
    """Return the median over the rounds of one measurement divided by another."""
    return statistics.median(a / b for a, b in zip(samples[of], samples[to], strict=True))


def medians(samples: dict[str, list[float]]) -> dict[str, float]:
    return {name: round(statistics.median(values), 5) for name, values in samples.items()}


def log(text: str) -> None:
    print(f"  {text}", flush=True)


def result(
    metric: str, value: float, *, at_least: float | None = None, at_most: float | None = None, **details: Any
) -> None:
    """Print a result as one line that ci/gpu reads."""
    bound = f">= {at_least}" if at_least is not None else f"<= {at_most}"
    holds = value >= at_least if at_least is not None else value <= (at_most or 0)
    line = {"metric": metric, "value": round(value, 4), "bound": bound, "holds": holds, "details": details}
    print("RESULT " + json.dumps(line), flush=True)
