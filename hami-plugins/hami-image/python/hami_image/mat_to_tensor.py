"""Mat2Tensor: from OpenCV's layout to the one networks take."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import hami
import numpy as np

from hami_image._mat import OneByOne, mat_of


class Mat2Tensor(OneByOne):
    """Turn a picture H x W x C into a contiguous tensor 1 x C x H x W (or C x H x W); values stay what they are.

    A gray picture becomes one channel. Values that the type cannot hold are refused; uint8 cuts fractions off.
    Scale and normalise with NormalizeTensor.
    """

    layout: Annotated[Literal["nchw", "chw"], "with or without a batch axis of 1"] = "nchw"
    dtype: Annotated[Literal["float32", "float16", "uint8"], "type of the result"] = "float32"

    def apply(self, item: Any) -> np.ndarray:
        mat = mat_of(item, "Mat2Tensor")
        if mat.ndim == 2:
            mat = mat[:, :, np.newaxis]
        if not np.can_cast(mat.dtype, self.dtype):
            self._check_range(mat)
        # Plane by plane: a strided copy of one plane runs at memory speed, one of all channels at once does not.
        tensor = np.empty((mat.shape[2], *mat.shape[:2]), self.dtype)
        for channel in range(mat.shape[2]):
            tensor[channel] = mat[:, :, channel]
        return tensor[np.newaxis] if self.layout == "nchw" else tensor

    def _check_range(self, mat: np.ndarray) -> None:
        least, most = (0, 255) if self.dtype == "uint8" else (-65504, 65504)  # of float16
        low, high = mat.min(), mat.max()
        if not (least <= low and high <= most):  # also if they are NaN
            raise hami.RequestError(
                f'Mat2Tensor: "dtype" = {self.dtype} holds {least} to {most}, got a picture of {mat.dtype} with values '
                f"from {low} to {high}; scale it before, or take float32"
            )
