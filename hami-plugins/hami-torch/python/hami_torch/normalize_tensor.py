"""NormalizeTensor: scale, mean and standard deviation per channel, and the type that networks take."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import hami

from hami_torch._image import ImageBackend
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
        mean, std = _floats(self.mean, "mean"), _floats(self.std, "std")
        if not mean or not std or (len(mean) != len(std) and 1 not in (len(mean), len(std))):
            raise hami.ConfigError(
                f'NormalizeTensor: "mean" and "std" have one number per channel or one for all, '
                f"got mean {self.mean!r} and std {self.std!r}"
            )
        if not all(std):
            raise hami.ConfigError(f'NormalizeTensor: "std" divides, so no value of it may be 0, got {self.std!r}')
        # One multiplication and one addition per value.
        means, stds = torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64)
        factor, offset = torch.broadcast_tensors(self.scale / stds, -means / stds)
        self._factor = factor.to(torch.float32).reshape(-1, 1, 1).to(self.torch_device)
        self._offset = offset.to(torch.float32).reshape(-1, 1, 1).to(self.torch_device)
        self._dtype = getattr(torch, self.dtype)

    def apply(self, images: torch.Tensor, setting: Any) -> torch.Tensor:
        if images.dtype != torch.float32:
            images = images.to(torch.float32)
        values = torch.addcmul(self._offset, images, self._factor)
        return values if self._dtype == torch.float32 else values.to(self._dtype)

    def image_of(self, item: Any) -> torch.Tensor:
        image = super().image_of(item)
        channels = self._factor.shape[0]
        if channels not in (1, image.shape[-3]):
            raise hami.RequestError(
                f'NormalizeTensor: "mean" and "std" are for {channels} channels, got a tensor of {list(image.shape)}'
            )
        return image


def _floats(values: Any, name: str) -> list[float]:
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError):
        raise hami.ConfigError(f'NormalizeTensor: "{name}" is a list of numbers, got {values!r}') from None
