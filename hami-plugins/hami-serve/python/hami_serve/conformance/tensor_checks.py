"""Checks of every datatype and of every kind of shape, with a model that returns its input."""

from __future__ import annotations

from typing import Any

import numpy as np

from hami_serve.conformance.context import Context, Skipped, check, expect, flat, succeeded
from hami_serve.datatypes import array_of_bytes, array_of_json, bytes_of_array

VALUES: dict[str, list[Any]] = {
    "BOOL": [True, False],
    "UINT8": [0, 255],
    "UINT16": [0, 65535],
    "UINT32": [0, 2**32 - 1],
    "UINT64": [0, 2**64 - 1],
    "INT8": [-128, 127],
    "INT16": [-32768, 32767],
    "INT32": [-(2**31), 2**31 - 1],
    "INT64": [-(2**63), 2**63 - 1],
    "FP32": [0.5, -3.0],
    "FP64": [0.1, -1e300],
    "BYTES": ["text", "ü"],
}
BINARY_ONLY = ("FP16", "BF16")
SHAPES = ([0], [1], [2, 3], [1, 1, 1, 1], [3, 0, 2], [1] * 8)


def _input(context: Context, datatype: str, shape: list[int]) -> tuple[str, dict[str, Any]]:
    """Return the name of the identity model, and its input without data."""
    if context.identity is None:
        raise Skipped("no model for it: give one with --identity")
    metadata = succeeded(context.client.get(f"/v2/models/{context.identity}"))
    names = [entry["name"] for entry in metadata.get("inputs", ())] or ["INPUT0"]
    return context.identity, {"name": names[0], "datatype": datatype, "shape": shape}


def _check_json(datatype: str) -> None:
    @check("tensors", f"{datatype} as JSON keeps its values")
    def as_json(context: Context) -> None:
        values = VALUES[datatype]
        model, entry = _input(context, datatype, [len(values)])
        (output,) = succeeded(context.client.infer(model, {"inputs": [{**entry, "data": values}]}))["outputs"]
        expect(output["datatype"] == datatype, f"the output is {output['datatype']}")
        expect(flat(output["data"]) == values, f"sent {values}, got {output['data']}")


def _check_binary(datatype: str) -> None:
    @check("tensors", f"{datatype} as bytes keeps its values")
    def as_bytes(context: Context) -> None:
        context.needs("binary_tensor_data")
        values = VALUES.get(datatype, [0.5, -2.0])
        source = "FP32" if datatype in BINARY_ONLY else datatype
        data = bytes(bytes_of_array(datatype, array_of_json('input "x"', source, (len(values),), values)))
        model, entry = _input(context, datatype, [len(values)])
        head = {
            "inputs": [{**entry, "parameters": {"binary_data_size": len(data)}}],
            "parameters": {"binary_data_output": True},
        }
        answer = context.client.infer_binary(model, head, data)
        (output,) = succeeded(answer)["outputs"]
        found = array_of_bytes('output "x"', output["datatype"], (len(values),), memoryview(answer.tail))
        sent = array_of_bytes('input "x"', datatype, (len(values),), memoryview(data))
        expect(np.array_equal(found, sent), f"sent {values}, got {found.tolist()}")


def _check_shape(shape: list[int]) -> None:
    @check("shapes", f"a tensor of shape {shape} keeps its shape")
    def keeps(context: Context) -> None:
        model, entry = _input(context, "FP32", shape)
        values = list(range(int(np.prod(shape))))
        (output,) = succeeded(context.client.infer(model, {"inputs": [{**entry, "data": values}]}))["outputs"]
        expect(output["shape"] == shape, f"the shape is {output['shape']}")
        expect([float(each) for each in flat(output["data"])] == values, f"the elements are {output['data']}")


for _datatype in VALUES:
    _check_json(_datatype)
for _datatype in (*VALUES, *BINARY_ONLY):
    _check_binary(_datatype)
for _shape in SHAPES:
    _check_shape(_shape)
