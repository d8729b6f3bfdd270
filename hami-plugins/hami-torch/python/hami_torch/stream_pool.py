"""StreamPool: a few streams that concurrent calls take in turn."""

from __future__ import annotations

import queue
from typing import Annotated, Any

import hami

from hami_torch import _streams
from hami_torch._device import device_of
from hami_torch._handing_over import run_on


class StreamPool(hami.Backend):
    """With[StreamPool(n), X]: runs each call of X on one of n streams, and waits for a free one where all are in use.

    The results are put in order with the stream outside, the CPU does not wait for them; X may be SyncTensor-like and
    wait itself. It serves backends that several threads call at once; each instance has its own n streams.
    """

    thread = "concurrent"

    n: Annotated[int, "how many streams"]
    device: Annotated[str, "cuda, cuda:N or cpu; what is not there is an error"] = "cuda"

    def init(self, options: Any) -> None:
        if self.n < 1:
            raise hami.ConfigError(f'StreamPool: "n" is 1 or more, got {self.n}')
        self._device = device_of(self.device, "StreamPool")
        cuda = self._device.type == "cuda"
        self._streams = [_streams.lease(self._device) for _ in range(self.n)] if cuda else []
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for stream in self._streams or [None] * self.n:
            self._free.put(stream)

    def forward_with_dep(self, batch: list[Any], dep: Any) -> None:
        stream = self._free.get()
        try:
            if stream is None:
                dep.forward(batch)
            else:
                run_on(stream, batch, dep)
        finally:
            self._free.put(stream)

    def close(self) -> None:
        for stream in self._streams:
            stream.synchronize()
            _streams.give_back(stream)
        self._streams = []
