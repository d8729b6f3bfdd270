"""(data * scale - mean) / std per channel, as networks take pictures."""

from __future__ import annotations

from typing import Any

import hami

from hami_torch._torch import torch


class Scaling:
    """Computes in float32 and gives `dtype`; one multiplication, one addition and the cast in one pass."""

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
        """`owner` and the `names` of the parameters are for errors."""
        self._owner, self._names = owner, names
        means, stds = self._floats(mean, names[0]), self._floats(std, names[1])
        if not means or not stds or (len(means) != len(stds) and 1 not in (len(means), len(stds))):
            raise hami.ConfigError(
                f'{owner}: "{names[0]}" and "{names[1]}" have one number per channel or one for all, '
                f"got mean {mean!r} and std {std!r}"
            )
        if not all(stds):
            raise hami.ConfigError(f'{owner}: "{names[1]}" divides, so no value of it may be 0, got {std!r}')
        shift, divisor = torch.tensor(means, dtype=torch.float64), torch.tensor(stds, dtype=torch.float64)
        factor, offset = torch.broadcast_tensors(scale / divisor, -shift / divisor)
        self._factor = factor.to(torch.float32).reshape(-1, 1, 1).to(device)
        self._offset = offset.to(torch.float32).reshape(-1, 1, 1).to(device)
        self._channels = len(self._factor)
        self._dtype = dtype

    def _floats(self, values: Any, name: str) -> list[float]:
        try:
            return [float(value) for value in values]
        except (TypeError, ValueError):
            raise hami.ConfigError(f'{self._owner}: "{name}" is a list of numbers, got {values!r}') from None

    def check(self, images: torch.Tensor) -> None:
        """Refuse pictures of another number of channels, which torch would multiply instead."""
        if not self.fits(images):
            raise hami.RequestError(
                f'{self._owner}: "{self._names[0]}" and "{self._names[1]}" are for {self._channels} channels, '
                f"got a tensor of {list(images.shape)}"
            )

    def fits(self, images: torch.Tensor) -> bool:
        """Whether there is a factor for each of the channels."""
        return self._channels == 1 or (images.ndim >= 3 and images.shape[-3] == self._channels)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Return new pictures, laid out in memory as those given."""
        images = images.float()
        if self._dtype == torch.float32:
            return torch.addcmul(self._offset, images, self._factor)
        return torch.addcmul(self._offset, images, self._factor, out=torch.empty_like(images, dtype=self._dtype))
