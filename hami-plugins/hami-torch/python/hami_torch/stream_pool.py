"""StreamPool: distribute concurrent calls over several CUDA streams."""

from __future__ import annotations

import queue
from typing import Annotated, Any

import hami

from hami_torch import _streams
from hami_torch._device import device_of
from hami_torch._stream_handoff import run_on_stream
from hami_torch._torch import torch
from hami_torch._types import BackendHandle, Batch


class StreamPool(hami.Backend):
    """Run each call of X in With[StreamPool(n), X] on one of n CUDA streams; wait for a free stream if all are in use.

    Use it for a backend X that several threads call at once. Each instance has its own n streams. The results are
    ordered with the stream outside the pool; the CPU does not wait for them, unless X itself waits.
    """

    thread = "concurrent"

    n: Annotated[int, "number of streams, at least 1"]
    device: Annotated[str, "cuda, cuda:N or cpu; an error if it does not exist"] = "cuda"

    def init(self, options: Any) -> None:
        if self.n < 1:
            raise hami.ConfigError(f'StreamPool: "n" must be at least 1, got {self.n}')
        self._device = device_of(self.device, "StreamPool", options=options)
        cuda = self._device.type == "cuda"
        self._streams = [_streams.lease(self._device) for _ in range(self.n)] if cuda else []
        # On the CPU the entries are None: they only limit the number of concurrent calls.
        self._free: queue.SimpleQueue[torch.cuda.Stream | None] = queue.SimpleQueue()
        for index in range(self.n):
            self._free.put(self._streams[index] if cuda else None)

    def forward_with_dep(self, batch: Batch, dep: BackendHandle) -> None:
        stream = self._free.get()
        try:
            if stream is None:
                dep.forward(batch)
            else:
                run_on_stream(stream, batch, dep)
        finally:
            self._free.put(stream)

    def close(self) -> None:
        for stream in self._streams:
            stream.synchronize()
            _streams.release(stream)
        self._streams = []
