"""Registers the backends of this package. They, and OpenCV with them, are imported when a pipeline uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add_library(Path(__file__).with_name("image.so"))
    registry.add("CropMat", "hami_image.crop_mat:CropMat")
    registry.add("CvtColorMat", "hami_image.cvt_color_mat:CvtColorMat")
    registry.add("DecodeMat", "hami_image.decode_mat:DecodeMat")
    registry.add("LetterBoxMat", "hami_image.letter_box_mat:LetterBoxMat")
    registry.add("OpenCvResizeMat", "hami_image.opencv_resize_mat:OpenCvResizeMat")
    registry.add("PillowResizeMat", "hami_image.pillow_resize_mat:PillowResizeMat")
    registry.add("Tensor2Mat", "hami_image.tensor_to_mat:Tensor2Mat")
    registry.add("TopLeftResizeMat", "hami_image.top_left_resize_mat:TopLeftResizeMat")


@hookimpl
def hami_data_type(backend: str) -> str | None:
    return "bytes" if backend == "DecodeMat" else None


@hookimpl
def hami_report() -> dict[str, str]:
    from importlib.metadata import version

    return {"opencv-python-headless": version("opencv-python-headless")}
