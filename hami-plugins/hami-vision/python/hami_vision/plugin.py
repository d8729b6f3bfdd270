"""Registers the backends of this package. They, and OpenCV with them, are imported when a pipeline uses them."""

from __future__ import annotations

from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add("CountObjects", "hami_vision.count_objects:CountObjects")
    registry.add("DecodeDetections", "hami_vision.decode_detections:DecodeDetections")
    registry.add("LetterBoxInput", "hami_vision.letter_box_input:LetterBoxInput")
    registry.add("TrackObjects", "hami_vision.track_objects:TrackObjects")
