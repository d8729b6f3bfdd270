"""What the image backends share: pictures of equal shape are worked on together, in one tensor."""

from __future__ import annotations

from typing import Any

import hami

from hami_torch._rows import gathered
from hami_torch._tensor import TensorBackend, dtype_name, show, without_frames
from hami_torch._torch import torch

_DTYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64)


class ImageBackend(TensorBackend):
    """Runs `apply` on pictures N x C x H x W; a request brings that, or C x H x W and gets the same back."""

    def run(self, batch: list[Any]) -> None:
        if not self._as_one(batch):
            self._by_shape(batch)

    def _as_one(self, batch: list[Any]) -> bool:
        """Work on pictures of one shape as on one tensor, without a look at each; False if they are something else."""
        found = self.parts(batch)
        if found is None or found[0][0].ndim != 4:
            return False
        parts, rows = found
        try:
            self.check_image(parts[0])
            settings = {self.setting(item) for item in batch}
        except hami.Error:
            return False  # whose fault it is, is seen one by one
        if len(settings) > 1:
            return False
        self.give_rows(batch, self.apply(gathered(parts), settings.pop()), rows)
        return True

    def _by_shape(self, batch: list[Any]) -> None:
        groups: dict[tuple[Any, ...], list[tuple[Any, torch.Tensor]]] = {}
        for item, image in self.read(batch, self.image_of):
            try:
                key = (image.shape[-3:], image.dtype, self.setting(item))
            except hami.Error as error:
                item.fail(without_frames(error))
                continue
            groups.setdefault(key, []).append((item, image))
        for (_, _, setting), members in groups.items():
            results = self._together([image for _, image in members], setting)
            for (item, _), result in zip(members, results, strict=True):
                self.give(item, result)

    def _together(self, images: list[torch.Tensor], setting: Any) -> list[torch.Tensor]:
        if len(images) == 1:
            image = images[0]
            return [self.apply(image, setting) if image.ndim == 4 else self.apply(image[None], setting)[0]]
        rows = [image if image.ndim == 4 else image[None] for image in images]
        whole = self.apply(gathered(rows), setting)
        parts = whole.split([row.shape[0] for row in rows])
        return [part if image.ndim == 4 else part[0] for part, image in zip(parts, images, strict=True)]

    def setting(self, item: Any) -> Any:
        """Return what else of a request decides how its picture is worked on."""
        return None

    def apply(self, images: torch.Tensor, setting: Any) -> torch.Tensor:
        raise NotImplementedError

    def image_of(self, item: Any) -> torch.Tensor:
        """Return `data` as pictures that `check_image` has nothing against."""
        image = self.tensor_of(item)
        self.check_image(image)
        return image

    def check_image(self, image: torch.Tensor) -> None:
        """Refuse what is no pictures, is empty, or has a type that pixels do not have."""
        owner = type(self).__name__
        if image.ndim not in (3, 4) or image.dtype not in _DTYPES:
            types = ", ".join(map(dtype_name, _DTYPES))
            raise hami.DataTypeError(
                f"{owner} takes pictures (a tensor C x H x W or N x C x H x W of {types}), got {show(image)}"
            )
        if image.numel() == 0:
            raise hami.RequestError(f"{owner}: the picture is empty, its shape is {list(image.shape)}")


def to_compute(images: torch.Tensor) -> torch.Tensor:
    """Return pixels in the type to compute in: float32, but for those that have more."""
    return images if images.dtype == torch.float64 else images.float()


def back_to(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return computed pixels as the type of the picture: whole numbers are rounded and cut to their range."""
    if dtype == torch.uint8:
        return values.round().clamp(0, 255).to(dtype)
    return values.to(dtype)
