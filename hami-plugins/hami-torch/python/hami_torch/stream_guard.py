"""StreamGuard: run on a separate CUDA stream without making the CPU wait."""

from __future__ import annotations

from hami_torch._guard import Guard


class StreamGuard(Guard):
    """Run the item in its brackets on a CUDA stream of this instance, without making the CPU wait for the results.

    Write StreamGuard[X], or put a bare StreamGuard last in an S: S[X, StreamGuard]. Use it for results that stay on
    the GPU: they are ordered with the stream outside the guard, so later work there sees them complete. On the CPU it
    does nothing.
    """
