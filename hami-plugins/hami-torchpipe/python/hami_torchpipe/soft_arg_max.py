"""SoftmaxArgMaxTensor: the most probable class of a row of scores."""

from __future__ import annotations

import math
from typing import Any

import hami


class SoftmaxArgMaxTensor(hami.Backend):
    """The most probable class of scores, in CPU memory: `result` and `class` are its index, `score` is its softmax.

    data: tensor 1 x C or C
    result: int
    """

    thread = "concurrent"
    lightweight = True

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            row = hami.to_numpy(item["data"]).astype("float64").ravel()
            if not row.size:
                item.fail(
                    hami.RequestError("SoftmaxArgMaxTensor takes scores of at least one class, got an empty tensor")
                )
                continue
            best = int(row.argmax())
            item["score"] = 1.0 / math.fsum(math.exp(value - row[best]) for value in row.tolist())
            item["result"] = item["class"] = best
