"""The backends of `Jump` and `MapReduce`, which run the graph of the pipe from another node on; and CopyKey."""

from __future__ import annotations

from typing import Annotated, Any

import hami

_NODE = "node_name"
_MERGED = ["result"]


class SplitParts(hami.Backend):
    """Part of `MapReduce`: lists the parts of a request, one for each element of the list under `split`."""

    thread = "concurrent"
    lightweight = True

    split: Annotated[str, "key of the list"] = "data"

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            elements = item.get(self.split)
            if not hasattr(elements, "__len__") or isinstance(elements, (str, bytes, dict)):
                item.fail(
                    hami.DataTypeError(
                        f'MapReduce splits the list under the key "{self.split}", got '
                        f"{'no such key' if elements is None else type(elements).__name__}; "
                        "`split` names a key that the node before it sets"
                    )
                )
                continue
            item["result"] = [{"data": item.get("data"), self.split: element} for element in elements]


class JumpTo(hami.Backend):
    """Part of `Jump`: runs its item on requests that start at the node `jump`."""

    child_count = (1, 1)
    thread = "concurrent"

    jump: Annotated[str, "name of the node"]

    def forward(self, batch: list[Any]) -> None:
        before = [item.get(_NODE) for item in batch]
        for item in batch:
            item[_NODE] = self.jump
        self.children[0].forward(batch)
        for item, name in zip(batch, before, strict=True):
            if name is None:
                item.pop(_NODE, None)
            else:
                item[_NODE] = name


class RunPart(JumpTo):
    """Part of `MapReduce`: runs its item on one part, and returns the keys under `merge`."""

    merge: Annotated[list[str], "keys that are returned"] = _MERGED

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            for key, value in item["data"].items():
                item[key] = value
        super().forward(batch)
        for item in batch:
            if "result" not in item:  # it has failed, or was skipped
                continue
            missing = [key for key in self.merge if key not in item]
            if missing:
                item.fail(
                    hami.RequestError(
                        f'MapReduce merges the key "{missing[0]}", which no node after "{self.jump}" sets; '
                        "`merge` names keys of the last node"
                    )
                )
                continue
            item["result"] = {key: item[key] for key in ("result", *self.merge)}


class MergeParts(hami.Backend):
    """Part of `MapReduce`: makes each key under `merge` the list of its values in all parts."""

    thread = "concurrent"
    lightweight = True

    merge: Annotated[list[str], "keys that become lists"] = _MERGED

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            for key in dict.fromkeys(("result", *self.merge)):
                item[key] = [part[key] for part in item["data"]]


class CopyKey(hami.Backend):
    """Copies a key of the request; `result` is `data`."""

    thread = "concurrent"
    lightweight = True

    source: Annotated[str, "key that is copied"]
    to: Annotated[str, "key of the copy"]

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            if self.source not in item:
                item.fail(hami.RequestError(f'CopyKey copies the key "{self.source}", which the request does not have'))
                continue
            item[self.to] = item[self.source]
            item["result"] = item["data"]
