"""ResizeTensor: to an exact size, whatever that does to the aspect."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import hami

from hami_torch._image import ImageBackend, back_to, to_compute
from hami_torch._torch import torch

_MODES = {"nearest": "nearest-exact", "linear": "bilinear", "cubic": "bicubic", "area": "area"}


class ResizeTensor(ImageBackend):
    """Resize pictures C x H x W or N x C x H x W to `width` x `height`; the aspect is not kept, the dtype is.

    `rounded = false` saves work where NormalizeTensor follows, which computes in float32 anyhow.
    """

    width: Annotated[int, "width of the result in pixels"]
    height: Annotated[int, "height of the result in pixels"]
    interpolation: Annotated[Literal["nearest", "linear", "cubic", "area"], "how pixels are computed"] = "linear"
    rounded: Annotated[bool, "whole numbers stay such; false: the result is float32, as computed"] = True
    antialias: Annotated[bool, "when shrinking, use all pixels below the new one (linear and cubic)"] = False

    def init(self, options: Any) -> None:
        super().init(options)
        for name in ("width", "height"):
            if getattr(self, name) < 1:
                raise hami.ConfigError(f'ResizeTensor: "{name}" is 1 or more, got {getattr(self, name)}')
        if self.antialias and self.interpolation not in ("linear", "cubic"):
            raise hami.ConfigError(
                f'ResizeTensor: "antialias" goes with interpolation linear or cubic, not with {self.interpolation}'
            )

    def apply(self, images: torch.Tensor, setting: Any) -> torch.Tensor:
        if images.shape[-2:] == (self.height, self.width):
            return images if self.rounded else to_compute(images)
        resized = torch.nn.functional.interpolate(
            to_compute(images),
            (self.height, self.width),
            mode=_MODES[self.interpolation],
            antialias=self.antialias,
        )
        return back_to(resized, images.dtype) if self.rounded else resized
