"""NormalizeTensor: scale, mean and standard deviation per channel."""

from __future__ import annotations

from typing import Annotated, Any

import hami
import numpy as np

from hami_image._mat import OneByOne, finite_floats, tensor_of


class NormalizeTensor(OneByOne):
    """Compute (data * scale - mean) / std in float32 on a tensor C x H x W or N x C x H x W.

    `mean` and `std` have one value per channel, or one for all: mean = [0.485, 0.456, 0.406], scale = 0.00392157.
    """

    mean: Annotated[list, "one number per channel, or one for all"] = [0.0]  # noqa: RUF012
    std: Annotated[list, "one number per channel, or one for all; not 0"] = [1.0]  # noqa: RUF012
    scale: Annotated[float, "factor applied first, often 1/255"] = 1.0

    def init(self, options: Any) -> None:
        mean = _numbers_of(self.mean, "mean")
        std = _numbers_of(self.std, "std")
        if not mean.size or not std.size or (mean.size != std.size and 1 not in (mean.size, std.size)):
            raise hami.ConfigError(
                f'NormalizeTensor: "mean" and "std" have one number per channel or one for all, '
                f"got mean {self.mean!r} and std {self.std!r}"
            )
        if not np.all(std):
            raise hami.ConfigError(f'NormalizeTensor: "std" divides, so no value of it may be 0, got {self.std!r}')
        # One multiplication and one addition per value.
        with np.errstate(over="ignore"):
            factor, offset = np.broadcast_arrays(self.scale / std, -mean / std)
            self._factor = factor.astype(np.float32).reshape(-1, 1, 1)
            self._offset = offset.astype(np.float32).reshape(-1, 1, 1)
        if not (np.isfinite(self._factor).all() and np.isfinite(self._offset).all()):
            raise hami.ConfigError(
                "NormalizeTensor: scale / std and mean / std must be finite numbers of float32, "
                f"got scale {self.scale!r}, mean {self.mean!r} and std {self.std!r}"
            )

    def apply(self, item: Any) -> np.ndarray:
        tensor = tensor_of(item, "NormalizeTensor")
        channels = len(self._factor)
        if channels not in (1, tensor.shape[-3]):
            raise hami.RequestError(
                f'NormalizeTensor: "mean" and "std" are for {channels} channels, got a tensor of shape {tensor.shape}'
            )
        result = np.multiply(tensor, self._factor, dtype=np.float32)
        result += self._offset
        return result


def _numbers_of(values: list[Any], name: str) -> np.ndarray:
    numbers = finite_floats(values)
    if numbers is None:
        raise hami.ConfigError(f'NormalizeTensor: "{name}" is a list of finite numbers, got {values!r}')
    return np.array(numbers, np.float64)
