"""Detections of objects in pictures and videos: decoding, tracking and counting as backends, and their result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hami_vision.detections import Detections

__all__ = ["Detections"]


def __getattr__(name: str) -> Any:
    """Import on first use: a pipeline that never runs here needs no NumPy."""
    if name != "Detections":
        raise AttributeError(f"module 'hami_vision' has no attribute {name!r}")
    from hami_vision.detections import Detections

    return Detections
