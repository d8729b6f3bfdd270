"""NormalizeTensor: normalize images per channel and convert them to the dtype of a model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from hami_torch._image import ImageBackend
from hami_torch._scaling import Scaling
from hami_torch._torch import torch


class NormalizeTensor(ImageBackend):
    """Normalize images, C x H x W or N x C x H x W: result = (data * scale - mean) / std, per channel.

    `mean` and `std` have one value for each channel, or one for all, for example mean = [0.485, 0.456, 0.406] with
    scale = 0.00392157 (1/255). Computes in float32; the result has the same shape and the dtype `dtype`.
    """

    mean: Annotated[list[Any], "one number per channel, or one for all; subtracted after scaling"] = [0.0]  # noqa: RUF012
    std: Annotated[list[Any], "one number per channel, or one for all; divides, must not be 0"] = [1.0]  # noqa: RUF012
    scale: Annotated[float, "factor that is applied first, often 1/255"] = 1.0
    dtype: Annotated[Literal["float32", "float16", "bfloat16"], "dtype of the result"] = "float32"

    def init(self, options: Any) -> None:
        super().init(options)
        self._scaling = Scaling(
            self.mean, self.std, self.scale, getattr(torch, self.dtype), self.torch_device, owner="NormalizeTensor"
        )

    def apply(self, images: torch.Tensor, variant: Any) -> torch.Tensor:
        return self._scaling(images)

    def check_image(self, image: torch.Tensor) -> None:
        super().check_image(image)
        self._scaling.check(image)
