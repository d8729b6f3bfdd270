"""Registers the backends of this package. They, and rapidocr with them, are imported when a pipeline uses them."""

from __future__ import annotations

from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add("CropLines", "hami_ocr.crop_lines:CropLines")
    registry.add("DetectText", "hami_ocr.detect_text:DetectText")
    registry.add("GatherLines", "hami_ocr.gather_lines:GatherLines")
    registry.add("OrientText", "hami_ocr.orient_text:OrientText")
    registry.add("RecognizeText", "hami_ocr.recognize_text:RecognizeText")


@hookimpl
def hami_report() -> dict[str, str]:
    from importlib.metadata import version

    return {"rapidocr": version("rapidocr")}
