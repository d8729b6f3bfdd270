"""Normalization of images: (data * scale - mean) / std per channel."""

from __future__ import annotations

from typing import Any

import hami

from hami_torch._torch import torch, torch_untyped


class Scaling:
    """Computes in float32; multiplication, addition and the cast to `dtype` are one pass over the image.

    (data * scale - mean) / std is data * factor + offset with factor = scale / std and offset = -mean / std.
    """

    def __init__(
        self,
        mean: Any,
        std: Any,
        scale: float,
        dtype: torch.dtype,
        device: torch.device,
        *,
        owner: str,
        names: tuple[str, str] = ("mean", "std"),
    ) -> None:
        """`owner`, the backend, and `names`, of the parameters that hold `mean` and `std`, are for errors."""
        self._owner, self._names = owner, names
        means, stds = self._floats(mean, names[0]), self._floats(std, names[1])
        if not means or not stds or (len(means) != len(stds) and 1 not in (len(means), len(stds))):
            raise hami.ConfigError(
                f'{owner}: "{names[0]}" and "{names[1]}" must have one number per channel, or one for all; '
                f"got {mean!r} and {std!r}"
            )
        if not all(stds):
            raise hami.ConfigError(f'{owner}: "{names[1]}" is a divisor and must not contain 0, got {std!r}')
        shift, divisor = torch.tensor(means, dtype=torch.float64), torch.tensor(stds, dtype=torch.float64)
        factor, offset = torch_untyped.broadcast_tensors(scale / divisor, -shift / divisor)
        self._factor: torch.Tensor = factor.to(torch.float32).reshape(-1, 1, 1).to(device)
        self._offset: torch.Tensor = offset.to(torch.float32).reshape(-1, 1, 1).to(device)
        self._channels = len(self._factor)
        self._dtype = dtype

    def _floats(self, values: Any, name: str) -> list[float]:
        try:
            return [float(value) for value in values]
        except (TypeError, ValueError):
            raise hami.ConfigError(f'{self._owner}: "{name}" must be a list of numbers, got {values!r}') from None

    def check(self, images: torch.Tensor) -> None:
        """Raise RequestError if the number of channels differs; torch would broadcast some such images silently."""
        if not self.fits(images):
            raise hami.RequestError(
                f'{self._owner}: "{self._names[0]}" and "{self._names[1]}" are for {self._channels} channels, '
                f"got a tensor of shape {list(images.shape)}"
            )

    def fits(self, images: torch.Tensor) -> bool:
        """Whether there is a factor for each channel of the images."""
        return self._channels == 1 or (images.ndim >= 3 and images.shape[-3] == self._channels)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Return normalized images; they keep the memory layout of the input."""
        images = images.float()
        if self._dtype == torch.float32:
            return torch.addcmul(self._offset, images, self._factor)
        return torch.addcmul(self._offset, images, self._factor, out=torch.empty_like(images, dtype=self._dtype))
