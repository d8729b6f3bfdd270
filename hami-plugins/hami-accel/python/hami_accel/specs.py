"""TensorSpec: name, type, shape, layout and quantisation of one input or output of a model."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hami_accel.errors import InputError


class Quantization(NamedTuple):
    """Affine quantisation: real value = scale * (integer - zero_point)."""

    scale: float
    zero_point: int = 0


class TensorSpec(NamedTuple):
    """One input or output of a loaded model. Accelerators have fixed shapes.

    >>> spec = TensorSpec("x", np.dtype("int8"), (1, 2), quantization=Quantization(0.5))
    >>> spec.nbytes, spec.dequantize(np.array([[2, -4]], np.int8)).tolist()
    (2, [[1.0, -2.0]])
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    layout: str = ""  # such as "NCHW"; empty if the model does not say
    quantization: Quantization | None = None

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"

    def quantize(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return real values as integers of this tensor, rounded to even and saturated."""
        scale, zero_point = self.quantization or Quantization(1.0)
        limits = np.iinfo(self.dtype)
        whole: NDArray[Any] = np.clip(np.rint(array / scale) + zero_point, limits.min, limits.max)
        return whole.astype(self.dtype)

    def dequantize(self, array: NDArray[Any]) -> NDArray[np.float32]:
        """Return integers of this tensor as real values."""
        scale, zero_point = self.quantization or Quantization(1.0)
        return ((array.astype(np.float32) - zero_point) * scale).astype(np.float32)

    def check(self, array: NDArray[Any], model: str) -> None:
        """Raise InputError unless `array` has the type and the shape of this tensor."""
        if array.dtype != self.dtype or array.shape != self.shape:
            what = "dtype" if array.dtype != self.dtype else "ndim" if array.ndim != len(self.shape) else "shape"
            raise InputError(
                f'{model}: "{self.name}" takes {self}, got {array.dtype} {list(array.shape)}: the {what} differs'
            )

    def check_size(self, array: NDArray[Any], model: str) -> None:
        """Raise InputError unless `array` has the size of this tensor in bytes and is contiguous in C order."""
        if array.nbytes != self.nbytes or not array.flags.c_contiguous:
            raise InputError(
                f'{model}: "{self.name}" takes {self.nbytes} contiguous bytes ({self}), got {array.nbytes} bytes with '
                f"the strides {array.strides} of {array.dtype} {list(array.shape)}; use numpy.ascontiguousarray"
            )
