"""ImageBackend, the base class of the image backends: images of the same shape are processed in one tensor."""

from __future__ import annotations

from typing import Any

import hami

from hami_torch._rows import concatenated
from hami_torch._tensor import TensorBackend, dtype_name, show
from hami_torch._torch import torch
from hami_torch._types import Batch, Request

_DTYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64)


class ImageBackend(TensorBackend):
    """Runs `apply` on images N x C x H x W. A request with an image C x H x W gets one back.

    If the request's key `data_format` is "hwc", an image of three axes is H x W x C, and so is the result.
    """

    max = "auto"
    lightweight = True  # on a CPU

    def run(self, batch: Batch) -> None:
        if not self._run_as_one_tensor(batch):
            self._run_by_shape(batch)

    def _run_as_one_tensor(self, batch: Batch) -> bool:
        """Process a batch of equal shapes without a look at each request; False if the batch is anything else."""
        found = self.parts(batch)
        if found is None or found[0][0].ndim != 4:
            return False
        parts, rows = found
        try:
            self.check_image(parts[0])
            variants = {self.variant(item) for item in batch}
        except hami.Error:
            return False  # _run_by_shape finds the request that is wrong
        if len(variants) > 1:
            return False
        self.give_rows(batch, self.apply(concatenated(parts), variants.pop()), rows)
        return True

    def _run_by_shape(self, batch: Batch) -> None:
        for items, inputs in self.read_groups(batch, self._input_of, _kind_of):
            results = self._apply_to_group([image for image, _ in inputs], inputs[0][1])
            for item, result in zip(items, results, strict=True):
                self.give(item, result)

    def _input_of(self, item: Request) -> tuple[torch.Tensor, Any]:
        return self.image_of(item), self.variant(item)

    def _apply_to_group(self, images: list[torch.Tensor], variant: Any) -> list[torch.Tensor]:
        rows = [image if image.ndim == 4 else image[None] for image in images]
        result = self.apply(concatenated(rows), variant)
        parts = torch.split(result, [row.shape[0] for row in rows]) if len(rows) > 1 else [result]
        return [part if image.ndim == 4 else part[0] for part, image in zip(parts, images, strict=True)]

    def variant(self, item: Request) -> Any:
        """Return what makes the processing of a request differ from others; equal variants are processed together."""
        return None

    def apply(self, images: torch.Tensor, variant: Any) -> torch.Tensor:
        """Process images N x C x H x W of one variant."""
        raise NotImplementedError

    def image_of(self, item: Request) -> torch.Tensor:
        """Return `data` as images that `check_image` accepts."""
        image = self.tensor_of(item)
        if _is_hwc(item, image):
            image = image.permute(2, 0, 1)
        self.check_image(image)
        return image

    def give(self, item: Request, value: torch.Tensor) -> None:
        super().give(item, value.permute(1, 2, 0) if _is_hwc(item, value) else value)

    def check_image(self, image: torch.Tensor) -> None:
        """Raise hami.Error unless the tensor has the shape and dtype of an image and at least one element."""
        owner = type(self).__name__
        if image.ndim not in (3, 4) or image.dtype not in _DTYPES:
            dtypes = ", ".join(map(dtype_name, _DTYPES))
            raise hami.DataTypeError(
                f"{owner} takes images (a tensor C x H x W or N x C x H x W of {dtypes}), got {show(image)}"
            )
        if image.numel() == 0:
            raise hami.RequestError(f"{owner}: the image is empty, its shape is {list(image.shape)}")


def _is_hwc(item: Request, image: torch.Tensor) -> bool:
    return image.ndim == 3 and bool(item.get("data_format") == "hwc")


def _kind_of(given: tuple[torch.Tensor, Any]) -> tuple[Any, ...]:
    """Return what images that are processed in one tensor have in common."""
    image, variant = given
    return image.shape[-3:], image.dtype, variant


def to_compute_dtype(images: torch.Tensor) -> torch.Tensor:
    """Return the pixels in the dtype to compute in: float64 stays, everything else becomes float32."""
    return images if images.dtype == torch.float64 else images.float()


def to_image_dtype(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return computed pixels in the dtype of the image; for uint8, round them and clamp them to 0 … 255."""
    if dtype == torch.uint8:
        return values.round().clamp(0, 255).to(dtype)
    return values.to(dtype)
