"""The whole path by hand, in plain Python and torch: the call for one picture, and a batcher for many callers."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import threading
from typing import Any

import torch
from _work import DEVICE, ON_GPU, SIZE, Captured, Normalized

if ON_GPU:
    from torchvision.io import ImageReadMode, decode_jpeg


class ByHand:
    """Decode, resize, run: everything on one stream, with the graphs' buffers; the mean is in the graphs."""

    def __init__(self, model: torch.nn.Module, batch_sizes: list[int]) -> None:
        self.captured = Captured(Normalized(model), batch_sizes, "float32")
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
        """The scores of a batch; complete when it returns."""
        with torch.no_grad(), torch.cuda.stream(self.stream):
            images = torch.stack(self.decode(files)).float()  # they are of one size, which this code may know
            images = torch.nn.functional.interpolate(images, (SIZE, SIZE), mode="bilinear")
            self.captured.input[: len(files)].copy_(images)
            scores = self.captured.run(len(files)).clone()
            if to_cpu:
                return scores.cpu()
            if self.stream is not None:
                self.stream.synchronize()
        return scores


class Batcher:
    """Callers put their picture into a queue; a worker waits `wait` ms for up to `most` of them, and runs them.

    No queue.SimpleQueue: with a timeout its `get` may wait for ever where several threads call it (CPython 3.11, 3.12).
    """

    def __init__(self, workers: list[ByHand], most: int, wait: float) -> None:
        self.most = most
        self.wait = wait / 1000
        self.waiting: collections.deque[tuple[bytes, Any]] = collections.deque()
        self.closed = False
        self.changed = threading.Condition()  # guards both
        self.collects = threading.Lock()  # one worker at a time waits for pictures
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
            if len(self.waiting) in (1, self.most):  # who collects has nothing to do in between
                self.changed.notify()

    def take(self) -> list[tuple[bytes, Any]]:
        with self.collects, self.changed:
            self.changed.wait_for(lambda: self.waiting or self.closed)
            self.changed.wait_for(lambda: len(self.waiting) >= self.most or self.closed, self.wait)
            return [self.waiting.popleft() for _ in range(min(self.most, len(self.waiting)))]

    def work(self, worker: ByHand) -> None:
        while batch := self.take():
            scores = worker.run([file for file, _ in batch])
            futures = [future for _, future in batch]
            if isinstance(futures[0], asyncio.Future):  # one wake-up of the loop for all
                futures[0].get_loop().call_soon_threadsafe(answer, futures, scores)
            else:
                answer(futures, scores)

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        for thread in self.threads:
            thread.join()


def answer(futures: list[Any], scores: torch.Tensor) -> None:
    for row, future in enumerate(futures):
        future.set_result(scores[row : row + 1])
