"""SyncTensor: run on a separate CUDA stream and wait for the results."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from hami_torch import _streams
from hami_torch._guard import Guard

_HOST_WAITS = {"spin": _streams.wait_spinning, "sleep": _streams.wait_sleeping}


class SyncTensor(Guard):
    """Run the item in its brackets on a CUDA stream of this instance, and wait until the results are complete.

    Write SyncTensor[X], or put a bare SyncTensor last in an S, whose other items then run on its stream:
    S[DecodeTensor, ResizeTensor, TorchModel, SyncTensor]. The results can be used at once, on any stream. The wait
    releases the GIL, and each instance has its own stream, so the work of several instances overlaps. On the CPU it
    does nothing.
    """

    wait: Annotated[
        Literal["spin", "sleep"], "spin: shortest delay, keeps a CPU core busy; sleep: frees the core, adds 0.1 ms"
    ] = "spin"

    def init(self, options: Any) -> None:
        super().init(options)
        self._host_wait = _HOST_WAITS[self.wait]
