"""Measures the size of the result of each node, for the edges of `hami graph`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import hami

from hami_tools.measured import built, config_of, readable_inputs

RECORDER = "HamiGraphRecorder"
NUMBER_BYTES = 8


def measure_sizes(arguments: argparse.Namespace) -> dict[str, float]:
    """Run the inputs once and return the mean size of the results of each node, in bytes.

    A node without `backend` is left out, and so is one that no input reaches.
    """
    recorded: dict[str, list[int]] = {}

    class Recorder(hami.Backend):
        node: str

        def forward(self, batch: list[hami.Request]) -> None:
            for item in batch:
                result = item.get("result", item.get("data"))
                item["result"] = result
                recorded.setdefault(self.node, []).append(size_of(result))

    hami.register(RECORDER)(Recorder)
    settings = [
        f"{name}.backend=S[{keys['backend']},{RECORDER}({name})]"
        for name, keys in config_of(arguments.source, arguments).nodes.items()
        if isinstance(keys.get("backend"), str)
    ]
    inputs, _ = readable_inputs(arguments)
    with built(arguments.source, arguments, settings) as pipe:
        pipe([dict(request) for _, request in inputs])
    return {node: sum(sizes) / len(sizes) for node, sizes in recorded.items()}


def size_of(value: Any) -> int:
    """Return the bytes of a value: its content, without what Python needs to hold it."""
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, Mapping):
        return sum(map(size_of, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(size_of, value))
    return 0 if value is None else NUMBER_BYTES
