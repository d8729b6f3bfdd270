"""Tensor2Mat: converts a tensor from the layout of neural networks to an image in OpenCV's layout."""

from __future__ import annotations

from typing import Any

import hami
import numpy as np
from numpy.typing import NDArray

from hami_image._image_backend import ImageBackend
from hami_image._inputs import tensor_of


class Tensor2Mat(ImageBackend):
    """Convert a tensor of one image to an image H x W x C of uint8.

    data: tensor C x H x W or 1 x C x H x W with C = 1, 3 or 4, values 0 to 255, any numeric dtype
    result: image H x W x C, or H x W if C = 1; uint8

    Values are rounded and clipped to 0 to 255. NaN becomes 0.
    """

    def apply(self, item: Any) -> NDArray[np.uint8]:
        tensor = tensor_of(item, "Tensor2Mat")
        if tensor.ndim == 4:
            if tensor.shape[0] != 1:
                raise hami.RequestError(
                    f"Tensor2Mat: the tensor must hold one image (batch axis of length 1), got shape {tensor.shape}"
                )
            tensor = tensor[0]
        if tensor.shape[0] not in (1, 3, 4):
            raise hami.RequestError(f"Tensor2Mat: the tensor must have 1, 3 or 4 channels, got shape {tensor.shape}")
        if tensor.dtype != np.uint8:
            tensor = np.clip(np.rint(np.nan_to_num(tensor)), 0, 255).astype(np.uint8)
        image: NDArray[np.uint8] = np.ascontiguousarray(tensor.transpose(1, 2, 0))
        return image[:, :, 0] if image.shape[2] == 1 else image
