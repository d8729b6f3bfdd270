"""Pick: between the outputs of a model and what a pipeline returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import hami


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
