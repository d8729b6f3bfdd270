"""read_onnx: reads the structure of an ONNX file, and rejects what would crash an engine or keep it busy without end.

Engines trust their models: they inline local functions that call each other until the memory ends, copy nested
subgraphs at exponential cost, and follow a path to weights anywhere in the file system. This module needs neither an
engine nor the packages onnx and protobuf, and it does not read weights.
"""

from __future__ import annotations

import functools
import math
import mmap
import os
import posixpath
from typing import Annotated, NamedTuple

import hami

from hami_model_check._graph import (
    Body,
    Limits,
    Node,
    Operator,
    Refused,
    check_graph_depth,
    check_nodes,
    check_order,
    inlined_size,
    show,
)
from hami_model_check._protobuf import Data, Reader

_HIGHEST_CALL_DEPTH = 200  # well below Python's own limit of recursion
_FIELDS_PER_NODE = 64  # more than models use, so that the time for reading grows with max_nodes only
_MORE_FIELDS = 1_000_000  # for weights, shapes and metadata
_MAX_DIMENSION = 1 << 63

# Bits of one element, by TensorProto.DataType, where raw_data holds nothing else.
_BITS = {1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128, 16: 16}
_BITS |= {17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8}


class OnnxFile(NamedTuple):
    """What read_onnx found.

    Attributes:
        nodes: number of nodes, in subgraphs too, after inlining all local functions.
        external_files: names of the files with weights, relative to the folder of the model; sorted.
    """

    nodes: int
    external_files: tuple[str, ...]


def read_onnx(
    path: str | os.PathLike[str],
    *,
    backend: str,
    max_nodes: int = 100_000,
    max_graph_depth: int = 10,
    max_call_depth: int = 64,
    empty_inputs: bool = False,
) -> OnnxFile:
    """Read the structure of an ONNX file; a file that has not changed since is not read again.

        files = read_onnx("detector.onnx", backend="OnnxTensor").external_files

    Args:
        path: the file.
        backend: the backend that opens it, for messages.
        max_nodes: largest number of nodes, in subgraphs too, after inlining all local functions.
        max_graph_depth: deepest nesting of subgraphs (If, Loop, Scan), through local functions too.
        max_call_depth: deepest nesting of calls of local functions.
        empty_inputs: whether the engine takes inputs with an axis of length 0, which only empty data fit.

    Raises:
        hami.ConfigError: the file is damaged, is not an ONNX model, exceeds a limit, contains a cycle, or names weights
            outside of its folder.
        OSError: the file cannot be read.
    """
    for name, value in (("max_nodes", max_nodes), ("max_graph_depth", max_graph_depth)):
        if value < 0:
            raise hami.ConfigError(f'{backend}: "{name}" must be at least 0, got {value}')
    if not 0 <= max_call_depth <= _HIGHEST_CALL_DEPTH:
        raise hami.ConfigError(
            f'{backend}: "max_call_depth" must be from 0 to {_HIGHEST_CALL_DEPTH}, got {max_call_depth}'
        )
    status = os.stat(path)
    try:
        return _read(
            os.path.realpath(path),
            (status.st_mtime_ns, status.st_size, status.st_ino),
            Limits(max_nodes, max_graph_depth, max_call_depth),
            empty_inputs,
        )
    except Refused as error:
        raise hami.ConfigError(f'{backend}: "{os.fspath(path)}" ({status.st_size} bytes) {error}') from None


class OnnxLimits(hami.Backend):
    """Base class of backends that open ONNX models: the limits of read_onnx as parameters."""

    max_nodes: Annotated[int, "ONNX: largest number of nodes after local functions are inlined"] = 100_000
    max_graph_depth: Annotated[int, "ONNX: deepest nesting of subgraphs (If, Loop, Scan)"] = 10
    max_call_depth: Annotated[int, "ONNX: deepest nesting of calls of local functions"] = 64

    def onnx_limits(self) -> dict[str, int]:
        """Return the arguments of read_onnx."""
        return {
            "max_nodes": self.max_nodes,
            "max_graph_depth": self.max_graph_depth,
            "max_call_depth": self.max_call_depth,
        }


@functools.lru_cache
def _read(path: str, stamp: tuple[int, ...], limits: Limits, empty_inputs: bool) -> OnnxFile:
    with open(path, "rb") as file:
        if not stamp[1]:
            raise Refused("is truncated or is not an ONNX model: the file is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Walk(data, limits, empty_inputs).file(len(data))


class _Walk:
    """Walks through the messages of onnx.proto that lead from a model to its nodes and tensors."""

    def __init__(self, data: Data, limits: Limits, empty_inputs: bool) -> None:
        self._data = data
        self._empty_inputs = empty_inputs
        self._limits = limits
        self._max_fields = limits.max_nodes * _FIELDS_PER_NODE + _MORE_FIELDS
        self._reader = Reader(data, self._max_fields)
        self._external: set[str] = set()

    def file(self, size: int) -> OnnxFile:
        try:
            return self._model(size)
        except OverflowError:
            raise Refused(
                f"has more than {self._max_fields:,} fields, which is the limit for max_nodes = "
                f"{self._limits.max_nodes:,}; simplify the model or raise max_nodes"
            ) from None
        except ValueError as error:
            raise Refused(f"is truncated or is not an ONNX model: {error}") from None

    def _model(self, size: int) -> OnnxFile:
        main = Body()
        functions: dict[Operator, Body] = {}
        has_graph = False
        for number, begin, end in self._reader.fields(0, size):
            if number == 7:
                has_graph = True
                self._graph(main, begin, end, 0)
            elif number == 25:
                operator, body = self._function(begin, end)
                if operator in functions:
                    raise ValueError(f'it defines the local function "{show(operator)}" twice')
                functions[operator] = body
        if not has_graph:
            raise ValueError("it has no graph")
        return OnnxFile(inlined_size(main, functions, self._limits).nodes, tuple(sorted(self._external)))

    def _function(self, begin: int, end: int) -> tuple[Operator, Body]:
        body = Body()
        name = domain = overload = b""
        nodes: list[Node] = []
        for number, start, stop in self._reader.fields(begin, end):
            if number == 1:
                name = self._data[start:stop]
            elif number == 10:
                domain = self._data[start:stop]
            elif number == 13:
                overload = self._data[start:stop]
            elif number == 7:
                nodes.append(self._node(body, start, stop, 0))
            elif number == 11:  # the default of an attribute
                self._attribute(body, start, stop, 0)
        check_order(nodes)
        return _operator(domain, name, overload), body

    def _graph(self, body: Body, begin: int, end: int, depth: int) -> set[bytes]:
        """Return the names that the graph uses from outside."""
        check_graph_depth(depth, self._limits)
        nodes: list[Node] = []
        known: set[bytes] = set()
        empty: set[bytes] = set()  # inputs that only empty data fit
        for number, start, stop in self._reader.fields(begin, end):
            if number == 1:
                nodes.append(self._node(body, start, stop, depth))
            elif number == 5:
                name = self._tensor(start, stop)
                known.add(name)
                empty.discard(name)
            elif number == 15:
                self._sparse_tensor(start, stop)
            elif number == 11:
                name, is_empty = self._input(start, stop)
                if is_empty and name not in known:
                    empty.add(name)
                known.add(name)
        if empty and depth == 0 and not self._empty_inputs:
            raise Refused(f'has an input "{_text(min(empty))}" with an axis of length 0, which only empty data fit')
        return check_order(nodes) - known

    def _node(self, body: Body, begin: int, end: int, depth: int) -> Node:
        op_type = domain = overload = b""
        uses: set[bytes] = set()
        outputs: list[bytes] = []
        data = self._data
        for number, start, stop in self._reader.fields(begin, end):
            if number == 1:
                uses.add(data[start:stop])
            elif number == 2:
                outputs.append(data[start:stop])
            elif number == 4:
                op_type = data[start:stop]
            elif number == 7:
                domain = data[start:stop]
            elif number == 8:
                overload = data[start:stop]
            elif number == 5:
                uses |= self._attribute(body, start, stop, depth)
        uses.discard(b"")
        operator = _operator(domain, op_type, overload)
        body.add(operator, depth)
        check_nodes(body.nodes, self._limits)
        return Node(operator, uses, outputs)

    def _attribute(self, body: Body, begin: int, end: int, depth: int) -> set[bytes]:
        """Return the names that the subgraphs of an attribute use from outside."""
        uses: set[bytes] = set()
        for number, start, stop in self._reader.fields(begin, end):
            if number in (5, 10):  # t, tensors
                self._tensor(start, stop)
            elif number in (6, 11):  # g, graphs
                uses |= self._graph(body, start, stop, depth + 1)
            elif number in (22, 23):  # sparse_tensor, sparse_tensors
                self._sparse_tensor(start, stop)
        return uses

    def _sparse_tensor(self, begin: int, end: int) -> None:
        for number, start, stop in self._reader.fields(begin, end):
            if number in (1, 2):  # values, indices
                self._tensor(start, stop)

    def _tensor(self, begin: int, end: int) -> bytes:
        """Check the size and the external data of a tensor. Return its name."""
        name = b""
        raw_size = None
        for number, start, stop in self._reader.fields(begin, end):
            if number == 8:
                name = self._data[start:stop]
            elif number == 9:
                raw_size = stop - start
            elif number == 13:
                self._external_data(start, stop)
        data_type = 0
        dimensions = []
        for number, value in self._reader.numbers(begin, end, 1, 2):
            if number == 1:
                dimensions.append(value)
            else:
                data_type = value
        if any(size >= _MAX_DIMENSION for size in dimensions):
            raise Refused(f'has a tensor "{_text(name)}" with an axis of negative length')
        if raw_size is not None and data_type in _BITS:
            expected = -(-math.prod(dimensions) * _BITS[data_type] // 8)
            if raw_size != expected:
                raise Refused(
                    f'has a tensor "{_text(name)}" of shape {dimensions} with {raw_size} bytes of data instead of '
                    f"{expected}"
                )
        return name

    def _external_data(self, begin: int, end: int) -> None:
        entry = {number: self._data[start:stop] for number, start, stop in self._reader.fields(begin, end)}
        if entry.get(1) != b"location":
            return
        location = os.fsdecode(entry.get(2, b""))
        parts = location.split("/")
        if not location or "\0" in location or posixpath.isabs(location) or ".." in parts or "*" in parts:
            raise Refused(
                f'names weights in "{_text(entry.get(2, b""))}", which is not a file in the folder of the model'
            )
        self._external.add(location)

    def _input(self, begin: int, end: int) -> tuple[bytes, bool]:
        """Return the name of an input, and whether it has an axis of length 0."""
        name = b""
        is_empty = False
        for number, start, stop in self._reader.fields(begin, end):
            if number == 1:
                name = self._data[start:stop]
            elif number == 2:
                is_empty = self._has_empty_axis(start, stop, (1, 2, 1))
        return name, is_empty

    def _has_empty_axis(self, begin: int, end: int, path: tuple[int, ...]) -> bool:
        """Follow TypeProto.tensor_type, shape, dim to dim_value."""
        if not path:
            return any(value == 0 for _, value in self._reader.numbers(begin, end, 1))
        return any(
            self._has_empty_axis(start, stop, path[1:])
            for number, start, stop in self._reader.fields(begin, end)
            if number == path[0]
        )


def _operator(domain: bytes, name: bytes, overload: bytes) -> Operator:
    return (b"" if domain == b"ai.onnx" else domain, name + b":" + overload if overload else name)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
