"""StreamGuard: a stream of its own, without a wait."""

from __future__ import annotations

from hami_torch._guard import Guard


class StreamGuard(Guard):
    """Run its item on a stream of its own; the results are put in order with the stream outside, the CPU does not wait.

    StreamGuard[X], or bare as the last item of an S, as SyncTensor. For results that stay on the device: whoever works
    on them there does so behind the work that makes them.
    """
