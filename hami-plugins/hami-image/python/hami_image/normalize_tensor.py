"""NormalizeTensor: applies scale, mean and standard deviation to the channels of a tensor."""

from __future__ import annotations

from typing import Annotated, Any

import hami
import numpy as np
from numpy.typing import NDArray

from hami_image._image_backend import ImageBackend
from hami_image._inputs import finite_floats, tensor_of


class NormalizeTensor(ImageBackend):
    """Compute (data * scale - mean) / std in float32.

    data: tensor C x H x W or N x C x H x W of any numeric dtype
    result: tensor of the same shape, float32

    For example, for images with values 0 to 255: mean = [0.485, 0.456, 0.406], std = [0.229, 0.224, 0.225],
    scale = 0.00392157.
    """

    mean: Annotated[list[Any], "one number per channel, or one for all channels"] = [0.0]  # noqa: RUF012
    std: Annotated[list[Any], "one number per channel, or one for all channels; not 0"] = [1.0]  # noqa: RUF012
    scale: Annotated[float, "factor that is applied first, often 1/255"] = 1.0

    def init(self, options: Any) -> None:
        mean = _read_numbers(self.mean, "mean")
        std = _read_numbers(self.std, "std")
        if not mean.size or not std.size or (mean.size != std.size and 1 not in (mean.size, std.size)):
            raise hami.ConfigError(
                'NormalizeTensor: "mean" and "std" must have one number per channel, or one for all channels, '
                f"got mean {self.mean!r} and std {self.std!r}"
            )
        if not np.all(std):
            raise hami.ConfigError(f'NormalizeTensor: "std" is a divisor and must not contain 0, got {self.std!r}')
        # (data * scale - mean) / std = data * factor + offset: one multiplication and one addition per value.
        with np.errstate(over="ignore"):
            factor, offset = np.broadcast_arrays(self.scale / std, -mean / std)
            self._factor = factor.astype(np.float32).reshape(-1, 1, 1)
            self._offset = offset.astype(np.float32).reshape(-1, 1, 1)
        if not (np.isfinite(self._factor).all() and np.isfinite(self._offset).all()):
            raise hami.ConfigError(
                "NormalizeTensor: scale / std and mean / std must be finite numbers in float32, "
                f"got scale {self.scale!r}, mean {self.mean!r} and std {self.std!r}"
            )

    def apply(self, item: Any) -> NDArray[np.float32]:
        tensor = tensor_of(item, "NormalizeTensor")
        channels = len(self._factor)
        if channels not in (1, tensor.shape[-3]):
            raise hami.RequestError(
                f'NormalizeTensor: "mean" and "std" are for {channels} channels, got a tensor of shape {tensor.shape}'
            )
        result: NDArray[np.float32] = np.multiply(tensor, self._factor, dtype=np.float32)
        result += self._offset
        return result


def _read_numbers(values: list[Any], name: str) -> NDArray[np.float64]:
    numbers = finite_floats(values)
    if numbers is None:
        raise hami.ConfigError(f'NormalizeTensor: "{name}" must be a list of finite numbers, got {values!r}')
    return np.array(numbers, np.float64)
