"""Base class of SyncTensor and StreamGuard: a CUDA stream for one instance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, cast

import hami

from hami_torch import _streams
from hami_torch._device import device_of
from hami_torch._stream_handoff import HostWait, hand_off_results, run_on_stream
from hami_torch._tensor import data_of
from hami_torch._torch import torch
from hami_torch._types import BackendHandle, Batch


class Guard(hami.Backend):
    """Holds one stream, never the default one: that of the instance, or a leased one, which the instance then has.

    With brackets, it runs the item in them on its stream. Bare, as the last item of an S, it is initialized first and
    makes its stream the current one of the instance's thread. All items of the instance share this thread, so the
    items before it run on its stream.
    """

    child_count = (0, 1)

    device: Annotated[str, "cuda, cuda:N or cpu; an error if it does not exist"] = "cuda"

    _host_wait: HostWait | None = None  # None: the CPU does not wait for the results
    _stream: torch.cuda.Stream | None = None
    _is_leased = False
    _outer_stream: torch.cuda.Stream | None = None  # bare only: the current stream before this one replaced it
    _outer_held: list[Any] | None = None

    def init(self, options: Any) -> None:
        self._device = device_of(self.device, type(self).__name__, options=options)
        if self._device.type == "cuda":
            self._stream = _streams.stream_of_instance(options, self._device)
            if self._stream is None:
                self._stream, self._is_leased = _streams.lease(self._device), True
                _streams.share_stream(options, self._stream)
            if self._child is None:
                self._outer_stream = _streams.current_stream(self._device)
                torch.cuda.set_stream(self._stream)
                self._outer_held = _streams.swap_held_inputs([])

    @property
    def _child(self) -> BackendHandle | None:
        children = cast("Sequence[BackendHandle]", self.children)
        return children[0] if children else None

    def min(self) -> Any:
        return None if self._child is None else self._child.min

    def max(self) -> Any:
        return None if self._child is None else self._child.max

    def forward(self, batch: Batch) -> None:
        child = self._child
        if child is None:
            self._forward_bare(batch)
        elif self._stream is None:
            child.forward(batch)
        else:
            run_on_stream(self._stream, batch, child, self._host_wait)

    def _forward_bare(self, batch: Batch) -> None:
        scattered = hami.batching.scattered(batch)
        if scattered is None:
            for item in batch:
                item["result"] = data_of(item, type(self).__name__)
        else:
            hami.batching.scatter(batch, scattered)
        if self._outer_stream is not None:
            hand_off_results(batch, _streams.current_stream(self._device), self._outer_stream, self._host_wait)

    def close(self) -> None:
        if self._stream is None:
            return
        if self._outer_stream is not None:
            torch.cuda.set_stream(self._outer_stream)
            _streams.swap_held_inputs(self._outer_held)
        self._stream.synchronize()  # the next holder finds the stream idle
        if self._is_leased:
            _streams.release(self._stream)
        self._stream = self._outer_stream = None
