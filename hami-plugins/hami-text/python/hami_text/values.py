"""Pick and L2Normalize: between the outputs of a model and what a pipeline returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import hami
import numpy as np

from hami_text.outputs import array_of

SMALLEST = 1e-12  # length of a vector below which it is not divided, as in torch.nn.functional.normalize


class Pick(hami.Backend):
    """Take one value out of a dict, such as an output of a model.

    data: a dict
    result: its value
    """

    max = 1024
    thread = "concurrent"
    lightweight = True

    key: Annotated[str, "the key of the value"]

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            data = item.get("data", None)
            if not isinstance(data, Mapping):
                item.fail(hami.DataTypeError(f"Pick takes a dict, got {type(data).__name__}"))
            elif self.key not in data:
                item.fail(hami.RequestError(f"Pick: the dict has no key {self.key!r}; it has {list(data)}"))
            else:
                item["result"] = data[self.key]


class L2Normalize(hami.Backend):
    """Divide vectors by their length, the root of the sum of squares. Vectors of zeros stay.

    data: array of floating-point numbers, of any shape
    result: array of float32 of this shape
    """

    max = 1024
    thread = "concurrent"
    lightweight = True

    axis: Annotated[int, "along which the vectors are; negative: from the end"] = -1

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            try:
                item["result"] = self._normalized(item.get("data", None))
            except hami.Error as error:
                item.fail(error)

    def _normalized(self, data: Any) -> Any:
        array = array_of(data, "L2Normalize takes an array")
        if array.dtype.kind not in "fV" or not -array.ndim <= self.axis < array.ndim:
            raise hami.DataTypeError(
                f"L2Normalize takes floating-point numbers with an axis {self.axis}, got {array.dtype} "
                f"{list(array.shape)}"
            )
        wide = array.astype(np.float64)  # the squares of large numbers do not fit float32
        lengths = np.sqrt(np.square(wide).sum(self.axis, keepdims=True))
        return np.ascontiguousarray(wide / np.maximum(lengths, SMALLEST), np.float32)
