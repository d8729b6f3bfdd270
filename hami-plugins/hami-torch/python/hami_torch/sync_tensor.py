"""SyncTensor: a stream of its own, and the wait for its work."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from hami_torch import _streams
from hami_torch._guard import Guard

_WAITS = {"spin": _streams.spin, "sleep": _streams.sleep}


class SyncTensor(Guard):
    """Run its item on a stream of its own and wait until the work is done; what leaves it may be used at once.

    SyncTensor[X], or bare as the last item of an S, whose earlier items then run on its stream:
    S[DecodeTensor, ResizeTensor, TorchModel, SyncTensor]. The wait releases the GIL, and each instance has its own
    stream, so the work of several instances overlaps. On the CPU there is nothing to wait for.
    """

    wait: Annotated[
        Literal["spin", "sleep"], "spin answers soonest; sleep leaves the core to others, and answers 0.1 ms later"
    ] = "spin"

    def init(self, options: Any) -> None:
        super().init(options)
        self._wait_for = _WAITS[self.wait]
