"""A stream of an instance's own: what SyncTensor and StreamGuard are made of."""

from __future__ import annotations

from typing import Annotated, Any

import hami

from hami_torch import _streams
from hami_torch._device import device_of
from hami_torch._handing_over import Wait, hand_over, run_on
from hami_torch._tensor import data_of
from hami_torch._torch import torch


class Guard(hami.Backend):
    """Holds one stream, never the default one. With brackets it runs what is in them on it.

    Without, as the last item of an S, it is initialised first and makes its stream the current one of the instance's
    thread, which all items of the instance share; so the items before it run on it.
    """

    children = (0, 1)

    device: Annotated[str, "cuda, cuda:N or cpu; what is not there is an error"] = "cuda"

    _wait_for: Wait | None = None  # how the CPU waits for the work, if it does
    _stream: torch.cuda.Stream | None = None
    _before: torch.cuda.Stream | None = None  # what was current before, where this one's stream took its place
    _held_outside: list[Any] | None = None

    def init(self, options: Any) -> None:
        self._device = device_of(self.device, type(self).__name__)
        if self._device.type == "cuda":
            self._stream = _streams.lease(self._device)
            if not self.children:
                self._before = _streams.current(self._device)
                torch.cuda.set_stream(self._stream)
                self._held_outside = _streams.hold([])

    def min(self) -> int | None:
        return self.children[0].min if self.children else None

    def max(self) -> int | None:
        return self.children[0].max if self.children else None

    def forward(self, batch: list[Any]) -> None:
        if self.children:
            if self._stream is None:
                self.children[0].forward(batch)
            else:
                run_on(self._stream, batch, self.children[0], self._wait_for)
            return
        whole = hami.scattered(batch)
        if whole is None:
            for item in batch:
                item["result"] = data_of(item, type(self).__name__)
        else:
            hami.scatter(batch, whole)
        if self._before is not None:
            hand_over(batch, _streams.current(self._device), self._before, self._wait_for)

    def close(self) -> None:
        if self._stream is None:
            return
        if self._before is not None:
            torch.cuda.set_stream(self._before)
            _streams.hold(self._held_outside)
        self._stream.synchronize()  # the next holder finds it idle
        _streams.give_back(self._stream)
        self._stream = self._before = None
