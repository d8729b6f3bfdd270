"""onnx_signature and describe_onnx: the inputs and outputs that an ONNX file declares, and facts about the file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from hami_model_check.graph import DTYPES, Port, read_graph


def onnx_signature(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the inputs and outputs of an ONNX file: lists of dicts with `name`, `dtype` and `shape`.

    A length of -1 is any. An output that is not a tensor, such as a list of maps, has the dtype "" and the shape [].
    The result is None if the file cannot be read, an input is not a tensor, or a tensor has no declared type and rank.
    """
    try:
        main = read_graph(path).main
    except (OSError, ValueError):
        return None
    inputs = [port for port in main.inputs if port.name not in main.constants]
    outputs = [port for port in main.outputs if port.data_type]
    if any(port.shape is None or port.data_type not in DTYPES for port in (*inputs, *outputs)):
        return None
    return {"inputs": _tensors(inputs), "outputs": _tensors(main.outputs)}


def _tensors(ports: Iterable[Port]) -> list[dict[str, Any]]:
    return [
        {
            "name": port.name,
            "dtype": DTYPES[port.data_type] if port.data_type else "",
            "shape": [-1 if size is None else size for size in port.shape or ()],
        }
        for port in ports
    ]


def describe_onnx(path: str | os.PathLike[str], weights: Iterable[str | os.PathLike[str]] = ()) -> dict[str, Any]:
    """Return facts about an ONNX file for `hami show`: its size with that of its weights, opsets and IR."""
    graph = read_graph(path)
    size = sum(os.path.getsize(each) for each in (path, *weights))
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in graph.opsets.items())
    return {"size": f"{size} bytes", "opset": opsets, "ir version": graph.ir_version}
