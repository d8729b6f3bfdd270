"""The reference without HAMi: the whole path in plain Python and torch, for one caller and with a batcher for many."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import threading
from typing import Any

import torch
from _workload import DEVICE, ON_GPU, SIZE, CapturedModel, Normalized

if ON_GPU:
    from torchvision.io import ImageReadMode, decode_jpeg


class ManualPipeline:
    """Decodes, resizes and runs a batch on one stream; normalization is part of the CUDA graphs, as in the pipe."""

    def __init__(self, model: torch.nn.Module, batch_sizes: list[int]) -> None:
        self.captured = CapturedModel(Normalized(model), batch_sizes, "float32")
        self.stream = self.captured.stream

    def decode(self, files: list[bytes]) -> list[torch.Tensor]:
        if not ON_GPU:
            import io

            import numpy as np
            from PIL import Image

            return [torch.from_numpy(np.array(Image.open(io.BytesIO(file)))).permute(2, 0, 1) for file in files]
        encoded = [torch.frombuffer(bytearray(file), dtype=torch.uint8) for file in files]
        if len(encoded) == 1:
            return [decode_jpeg(encoded[0], mode=ImageReadMode.RGB, device=DEVICE)]
        return decode_jpeg(encoded, mode=ImageReadMode.RGB, device=DEVICE)

    def run(self, files: list[bytes], *, to_cpu: bool = False) -> torch.Tensor:
        """Return the scores of a batch; they are complete when this returns."""
        with torch.no_grad(), torch.cuda.stream(self.stream):
            images = torch.stack(self.decode(files)).float()  # this code may rely on equal image sizes
            images = torch.nn.functional.interpolate(images, (SIZE, SIZE), mode="bilinear")
            self.captured.input[: len(files)].copy_(images)
            scores = self.captured.run(len(files)).clone()
            if to_cpu:
                return scores.cpu()
            if self.stream is not None:
                self.stream.synchronize()
        return scores


class Batcher:
    """Collects files from many callers; each worker runs up to `max_size` of them after at most `timeout_ms`.

    It does not use queue.SimpleQueue: if several threads call its `get` with a timeout, the call may never return
    (CPython 3.11 and 3.12).
    """

    def __init__(self, workers: list[ManualPipeline], max_size: int, timeout_ms: float) -> None:
        self.max_size = max_size
        self.timeout = timeout_ms / 1000
        self.waiting: collections.deque[tuple[bytes, Any]] = collections.deque()
        self.closed = False
        self.changed = threading.Condition()  # guards both
        self.collecting = threading.Lock()  # one worker at a time collects a batch
        self.threads = [threading.Thread(target=self.work, args=(worker,)) for worker in workers]
        for thread in self.threads:
            thread.start()

    def __call__(self, file: bytes) -> torch.Tensor:
        future: concurrent.futures.Future[torch.Tensor] = concurrent.futures.Future()
        self.put(file, future)
        return future.result()

    async def acall(self, file: bytes) -> torch.Tensor:
        future: asyncio.Future[torch.Tensor] = asyncio.get_running_loop().create_future()
        self.put(file, future)
        return await future

    def put(self, file: bytes, future: Any) -> None:
        with self.changed:
            self.waiting.append((file, future))
            if len(self.waiting) in (1, self.max_size):  # the collecting worker waits for these two numbers only
                self.changed.notify()

    def take(self) -> list[tuple[bytes, Any]]:
        with self.collecting, self.changed:
            self.changed.wait_for(lambda: self.waiting or self.closed)
            self.changed.wait_for(lambda: len(self.waiting) >= self.max_size or self.closed, self.timeout)
            return [self.waiting.popleft() for _ in range(min(self.max_size, len(self.waiting)))]

    def work(self, worker: ManualPipeline) -> None:
        while batch := self.take():
            scores = worker.run([file for file, _ in batch])
            futures = [future for _, future in batch]
            if isinstance(futures[0], asyncio.Future):  # wake the event loop once for the whole batch
                futures[0].get_loop().call_soon_threadsafe(set_results, futures, scores)
            else:
                set_results(futures, scores)

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        for thread in self.threads:
            thread.join()


def set_results(futures: list[Any], scores: torch.Tensor) -> None:
    for row, future in enumerate(futures):
        future.set_result(scores[row : row + 1])
