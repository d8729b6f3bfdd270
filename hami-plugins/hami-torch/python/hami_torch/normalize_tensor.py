"""NormalizeTensor: scale, mean and standard deviation per channel, and the type that networks take."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from hami_torch._image import ImageBackend
from hami_torch._scaling import Scaling
from hami_torch._torch import torch


class NormalizeTensor(ImageBackend):
    """Compute (data * scale - mean) / std in float32 on pictures C x H x W or N x C x H x W, and give it as `dtype`.

    `mean` and `std` have one value per channel, or one for all: mean = [0.485, 0.456, 0.406], scale = 0.00392157.
    """

    mean: Annotated[list, "one number per channel, or one for all"] = [0.0]  # noqa: RUF012
    std: Annotated[list, "one number per channel, or one for all; not 0"] = [1.0]  # noqa: RUF012
    scale: Annotated[float, "factor applied first, often 1/255"] = 1.0
    dtype: Annotated[Literal["float32", "float16", "bfloat16"], "type of the result"] = "float32"

    def init(self, options: Any) -> None:
        super().init(options)
        self._scaling = Scaling(
            self.mean, self.std, self.scale, getattr(torch, self.dtype), self.torch_device, owner="NormalizeTensor"
        )

    def apply(self, images: torch.Tensor, setting: Any) -> torch.Tensor:
        return self._scaling(images)

    def check_image(self, image: torch.Tensor) -> None:
        super().check_image(image)
        self._scaling.check(image)
