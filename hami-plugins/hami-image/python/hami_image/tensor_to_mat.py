"""Tensor2Mat: from the layout of networks back to a picture."""

from __future__ import annotations

from typing import Any

import hami
import numpy as np

from hami_image._mat import OneByOne, tensor_of


class Tensor2Mat(OneByOne):
    """Turn a tensor C x H x W (or 1 x C x H x W) of values 0 … 255 into a uint8 picture H x W x C.

    Values are rounded and cut to 0 … 255, NaN becomes 0. One channel gives H x W.
    """

    def apply(self, item: Any) -> np.ndarray:
        tensor = tensor_of(item, "Tensor2Mat")
        if tensor.ndim == 4:
            if tensor.shape[0] != 1:
                raise hami.RequestError(
                    f"Tensor2Mat makes one picture: the batch axis is 1, got a tensor of shape {tensor.shape}"
                )
            tensor = tensor[0]
        if tensor.shape[0] not in (1, 3, 4):
            raise hami.RequestError(
                f"Tensor2Mat: a picture has 1, 3 or 4 channels, got a tensor of shape {tensor.shape}"
            )
        if tensor.dtype != np.uint8:
            tensor = np.clip(np.rint(np.nan_to_num(tensor)), 0, 255).astype(np.uint8)
        mat = np.ascontiguousarray(tensor.transpose(1, 2, 0))
        return mat[:, :, 0] if mat.shape[2] == 1 else mat
