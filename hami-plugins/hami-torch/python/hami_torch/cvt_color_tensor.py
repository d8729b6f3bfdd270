"""CvtColorTensor: from one order of channels to another."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import hami

from hami_torch._image import ImageBackend, back_to, to_compute
from hami_torch._torch import torch

_RGB_TO_GRAY = (0.299, 0.587, 0.114)  # ITU-R BT.601, as JPEG has it


class CvtColorTensor(ImageBackend):
    """Convert the colors of pictures to `color`; a picture of one channel is gray.

    What a picture of three channels has is said by the request's key `color`, which DecodeTensor sets and this sets
    anew, else by `source`.
    """

    color: Annotated[Literal["rgb", "bgr", "gray"], "what the result has"]
    source: Annotated[Literal["rgb", "bgr"], "what a picture of three channels has, where the request does not say"] = (
        "rgb"
    )

    def init(self, options: Any) -> None:
        super().init(options)
        self._weights = torch.tensor(_RGB_TO_GRAY, dtype=torch.float64).to(self.torch_device)

    def run(self, batch: list[Any]) -> None:
        super().run(batch)
        for item in batch:
            if "result" in item:
                item["color"] = self.color

    def setting(self, item: Any) -> str:
        source = item.get("color", self.source)
        if source not in ("rgb", "bgr", "gray"):
            raise hami.RequestError(f'CvtColorTensor: "color" of the request is rgb, bgr or gray, got {source!r}')
        return str(source)

    def apply(self, images: torch.Tensor, setting: str) -> torch.Tensor:
        channels = images.shape[1]
        if channels == 1:
            return images if self.color == "gray" else images.expand(-1, 3, -1, -1).contiguous()
        if setting == "gray":
            setting = self.source
        if setting == self.color:
            return images
        if self.color != "gray":
            return images.flip(1)
        pixels = to_compute(images)
        weights = self._weights if setting == "rgb" else self._weights.flip(0)
        gray = (pixels * weights.to(pixels.dtype).reshape(-1, 1, 1)).sum(1, keepdim=True)
        return back_to(gray, images.dtype)

    def check_image(self, image: torch.Tensor) -> None:
        super().check_image(image)
        if image.shape[-3] not in (1, 3):
            raise hami.DataTypeError(f"CvtColorTensor takes pictures of 1 or 3 channels, got {list(image.shape)}")
