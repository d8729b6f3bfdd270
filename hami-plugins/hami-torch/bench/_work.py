"""What the measurements share: the model, the pictures, callers in a closed loop, and how a result is printed."""

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

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SIZE = 224
SECONDS = float(os.environ.get("HAMI_BENCH_SECONDS", "2"))  # of one turn
ROUNDS = int(os.environ.get("HAMI_BENCH_ROUNDS", "5"))
# "cpu" is for trying these scripts where there is no GPU; nothing that they print then means anything.
# With its number: torchvision makes its decoder anew, in a third of a second, whenever "cuda" follows "cuda:0".
DEVICE = os.environ.get("HAMI_BENCH_DEVICE", "cuda:0")
ON_GPU = DEVICE != "cpu"

MODEL: dict[str, Any] = {
    "factory": os.environ.get("HAMI_BENCH_FACTORY", "torchvision.models:resnet50"),
    "dtype": "float16" if ON_GPU else "float32",
    "channels_last": True,
    "row_shape": [3, SIZE, SIZE],
    "device": DEVICE,
}
STEPS = "DecodeTensor,ResizeTensor(rounded=false),TorchModel"
WHOLE = f"S[{STEPS},SyncTensor]"
PREPARED: dict[str, Any] = {"width": SIZE, "height": SIZE}
# The mean is part of what is captured, by hand as in the pipe.
PREPARED |= {"input_mean": MEAN, "input_std": STD, "input_scale": 1 / 255}


def sizes(most: int) -> list[int]:
    """The batch sizes that are captured: so close to each other that little is padded."""
    return [size for size in (1, 2, 4, 6, *range(8, 65, 4)) if size <= most] if ON_GPU else []


def pictures(count: int = 64) -> list[bytes]:
    """JPEG files of 500 x 375, each another one."""
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


def module() -> torch.nn.Module:
    """The model as TorchModel makes it."""
    import importlib

    place, _, name = MODEL["factory"].partition(":")
    made = getattr(importlib.import_module(place), name)().eval().to(DEVICE)
    return made.to(getattr(torch, MODEL["dtype"])).to(memory_format=torch.channels_last)


class Normalized(torch.nn.Module):
    """The model on float32 pixels as they are resized: 0 … 255."""

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


class Captured:
    """The model as one would capture it by hand: a CUDA graph for each batch size."""

    def __init__(self, model: torch.nn.Module, batch_sizes: Sequence[int], dtype: str = MODEL["dtype"]) -> None:
        self.model = model
        most = max(batch_sizes, default=64)
        self.input = torch.zeros((most, 3, SIZE, SIZE), dtype=getattr(torch, dtype), device=DEVICE)
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
        """Run on the first `rows` of the input, on the current stream."""
        if not self.graphs:
            with torch.no_grad():
                return self.model(self.input[:rows])
        size = min(size for size in self.graphs if size >= rows)
        graph, output = self.graphs[size]
        graph.replay()
        return output[:rows]


def raw_throughput(captured: Captured, size: int, seconds: float) -> float:
    """Images a second of one batch size, one run after the other, input on the device."""
    started, runs = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        for _ in range(10):
            captured.run(size)
        runs += 10
        if ON_GPU:
            torch.cuda.synchronize()
    return runs * size / (time.perf_counter() - started)


def closed_loop(call: Callable[[Any], Any], data: Sequence[Any], callers: int, seconds: float) -> float:
    """Calls a second, of so many threads that each ask again as soon as they are answered."""
    done, errors = [0] * callers, []
    together = threading.Barrier(callers + 1)
    stop = threading.Event()

    def ask(number: int) -> None:
        together.wait()
        try:
            while not stop.is_set():
                call(data[(number + done[number]) % len(data)])
                done[number] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    together.wait()
    started = time.perf_counter()
    stop.wait(seconds)
    counted, took = sum(done), time.perf_counter() - started
    stop.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return counted / took


def closed_loop_of_tasks(
    call: Callable[[Any], Awaitable[Any]], data: Sequence[Any], callers: int, seconds: float
) -> float:
    """Calls a second, of so many asyncio tasks that each ask again as soon as they are answered."""

    async def main() -> float:
        done = [0] * callers
        started = time.perf_counter()

        async def ask(number: int) -> None:
            while time.perf_counter() - started < seconds:
                await call(data[(number + done[number]) % len(data)])
                done[number] += 1

        await asyncio.gather(*(ask(number) for number in range(callers)))
        return sum(done) / (time.perf_counter() - started)

    return asyncio.run(main())


def interleaved(measures: dict[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Take each measure once a round, so that what changes on the machine changes for all of them."""
    taken: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds):
        for name, measure in measures.items():
            taken[name].append(measure())
        say(f"round {number + 1}: " + ", ".join(f"{name} {values[-1]:.5g}" for name, values in taken.items()))
    return taken


def ratio(taken: dict[str, list[float]], of: str, to: str) -> float:
    """The median over the rounds of one measure divided by another."""
    return statistics.median(a / b for a, b in zip(taken[of], taken[to], strict=True))


def medians(taken: dict[str, list[float]]) -> dict[str, float]:
    return {name: round(statistics.median(values), 5) for name, values in taken.items()}


def say(text: str) -> None:
    print(f"  {text}", flush=True)


def result(
    question: str, value: float, *, at_least: float | None = None, at_most: float | None = None, **details: Any
) -> None:
    """Print the answer as one line that ci/gpu reads."""
    bound = f">= {at_least}" if at_least is not None else f"<= {at_most}"
    holds = value >= at_least if at_least is not None else value <= (at_most or 0)
    line = {"question": question, "value": round(value, 4), "bound": bound, "holds": holds, "details": details}
    print("RESULT " + json.dumps(line), flush=True)
