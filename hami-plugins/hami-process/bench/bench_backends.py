"""The backends of compare.py, and the same work as functions for concurrent.futures."""

from __future__ import annotations

from typing import Any

import hami


def nothing(data: Any) -> None:
    """Take `data`, and return nothing of it."""


def same(data: Any) -> Any:
    return data


def spin(rounds: int) -> int:
    total = 0
    for number in range(rounds):
        total += number * number
    return total


class _Runs(hami.Backend):
    def forward(self, batch: list[hami.Request]) -> None:
        for item in batch:
            item["result"] = type(self).function(item["data"])


for _function in (nothing, same, spin):
    _name = _function.__name__.title()
    _members = {"function": staticmethod(_function), "__module__": __name__, "__qualname__": _name, "__doc__": _name}
    globals()[_name] = hami.register(type(_name, (_Runs,), _members))
