"""CvtColorTensor: convert images between RGB, BGR and gray."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import hami

from hami_torch._image import ImageBackend, to_compute_dtype, to_image_dtype
from hami_torch._torch import torch
from hami_torch._types import Batch, Request

_RGB_TO_GRAY = (0.299, 0.587, 0.114)  # ITU-R BT.601, as in JPEG


class CvtColorTensor(ImageBackend):
    """Convert images, C x H x W or N x C x H x W with C = 1 or 3, to the color format `color`.

    An image of one channel is gray. The format of an image of three channels is the request's key `color`, which
    DecodeTensor and this backend set, or `source` if the request has no such key. The dtype stays. Gray is
    0.299 R + 0.587 G + 0.114 B (ITU-R BT.601).
    """

    color: Annotated[Literal["rgb", "bgr", "gray"], "format of the result"]
    source: Annotated[Literal["rgb", "bgr"], "format of images of three channels without a `color` key"] = "rgb"

    def init(self, options: Any) -> None:
        super().init(options)
        self._weights = torch.tensor(_RGB_TO_GRAY, dtype=torch.float64).to(self.torch_device)

    def run(self, batch: Batch) -> None:
        super().run(batch)
        for item in batch:
            if "result" in item:
                item["color"] = self.color

    def variant(self, item: Request) -> str:
        source = item.get("color", self.source)
        if source not in ("rgb", "bgr", "gray"):
            raise hami.RequestError(f'CvtColorTensor: the key "color" must be rgb, bgr or gray, got {source!r}')
        return str(source)

    def apply(self, images: torch.Tensor, variant: str) -> torch.Tensor:
        channels = images.shape[1]
        if channels == 1:
            return images if self.color == "gray" else images.expand(-1, 3, -1, -1).contiguous()
        source = self.source if variant == "gray" else variant
        if source == self.color:
            return images
        if self.color != "gray":
            return images.flip(1)
        pixels = to_compute_dtype(images)
        weights = self._weights if source == "rgb" else self._weights.flip(0)
        gray = (pixels * weights.to(pixels.dtype).reshape(-1, 1, 1)).sum(1, keepdim=True)
        return to_image_dtype(gray, images.dtype)

    def check_image(self, image: torch.Tensor) -> None:
        super().check_image(image)
        if image.shape[-3] not in (1, 3):
            raise hami.DataTypeError(f"CvtColorTensor takes images of 1 or 3 channels, got shape {list(image.shape)}")
