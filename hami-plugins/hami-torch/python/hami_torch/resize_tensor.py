"""ResizeTensor: resize images to an exact size; the aspect ratio is not kept."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import hami

from hami_torch._image import ImageBackend, to_compute_dtype, to_image_dtype
from hami_torch._torch import torch

_MODES = {"nearest": "nearest-exact", "linear": "bilinear", "cubic": "bicubic", "area": "area"}


class ResizeTensor(ImageBackend):
    """Resize images, C x H x W or N x C x H x W, to `width` x `height` pixels; the aspect ratio is not kept.

    Computes in float32 (float64 images in float64); the result has the dtype of the image. Set `rounded = false` in
    front of NormalizeTensor or of the input scaling of TorchModel: the result stays float32, which saves a conversion.
    """

    width: Annotated[int, hami.Alias("resize_w"), "width of the result in pixels"]
    height: Annotated[int, hami.Alias("resize_h"), "height of the result in pixels"]
    interpolation: Annotated[Literal["nearest", "linear", "cubic", "area"], "interpolation method"] = "linear"
    rounded: Annotated[bool, "convert the result to the dtype of the image; false: leave it float32"] = True
    antialias: Annotated[bool, "average over all source pixels when shrinking (linear and cubic only)"] = False
    align_corners: Annotated[bool, "map the centres of the corner pixels onto each other (linear and cubic only)"] = (
        False
    )

    def init(self, options: Any) -> None:
        super().init(options)
        for name in ("width", "height"):
            if getattr(self, name) < 1:
                raise hami.ConfigError(f'ResizeTensor: "{name}" must be at least 1, got {getattr(self, name)}')
        for name in ("antialias", "align_corners"):
            if getattr(self, name) and self.interpolation not in ("linear", "cubic"):
                raise hami.ConfigError(
                    f'ResizeTensor: "{name}" needs interpolation linear or cubic, got {self.interpolation}'
                )

    def apply(self, images: torch.Tensor, variant: Any) -> torch.Tensor:
        if images.shape[-2:] == (self.height, self.width):
            return images if self.rounded else to_compute_dtype(images)
        resized = torch.nn.functional.interpolate(
            to_compute_dtype(images),
            (self.height, self.width),
            mode=_MODES[self.interpolation],
            antialias=self.antialias,
            align_corners=self.align_corners or None,  # None: the only value that the other modes accept
        )
        return to_image_dtype(resized, images.dtype) if self.rounded else resized
