"""The whole path by hand, in plain Python and torch: the call for one picture, and a batcher for many callers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import threading
import time
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
    """Callers put their picture into a queue; a worker takes what comes within `wait` ms, up to `most`, and runs it."""

    def __init__(self, workers: list[ByHand], most: int, wait: float) -> None:
        self.most = most
        self.wait = wait / 1000
        self.waiting: queue.SimpleQueue[tuple[bytes, Any] | None] = queue.SimpleQueue()
        self.threads = [threading.Thread(target=self.work, args=(worker,)) for worker in workers]
        for thread in self.threads:
            thread.start()

    def __call__(self, file: bytes) -> torch.Tensor:
        future: concurrent.futures.Future[torch.Tensor] = concurrent.futures.Future()
        self.waiting.put((file, future))
        return future.result()

    async def acall(self, file: bytes) -> torch.Tensor:
        future: asyncio.Future[torch.Tensor] = asyncio.get_running_loop().create_future()
        self.waiting.put((file, future))
        return await future

    def work(self, worker: ByHand) -> None:
        while (first := self.waiting.get()) is not None:
            batch = [first]
            end = time.monotonic() + self.wait
            while len(batch) < self.most:
                try:
                    another = self.waiting.get(timeout=max(0.0, end - time.monotonic()))
                except queue.Empty:
                    break
                if another is None:
                    self.waiting.put(None)
                    break
                batch.append(another)
            scores = worker.run([file for file, _ in batch])
            futures = [future for _, future in batch]
            if isinstance(futures[0], asyncio.Future):  # one wake-up of the loop for all
                futures[0].get_loop().call_soon_threadsafe(answer, futures, scores)
            else:
                answer(futures, scores)

    def close(self) -> None:
        for _ in self.threads:
            self.waiting.put(None)
        for thread in self.threads:
            thread.join()


def answer(futures: list[Any], scores: torch.Tensor) -> None:
    for row, future in enumerate(futures):
        future.set_result(scores[row : row + 1])
