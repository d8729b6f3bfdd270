"""read_graph: the nodes, attributes and constants of an ONNX file, as data, without the packages onnx and protobuf.

    graph = read_graph("detector.onnx")
    [node.op_type for node in graph.nodes()]

It is for checks of what a model computes. Values of floating-point attributes and contents of weights are not read.
"""

from __future__ import annotations

import functools
import mmap
import os
import sys
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Union

from hami_model_check._protobuf import Data, Reader

_MOST_FIELDS = 20_000_000  # read_onnx has its own, smaller limit and runs before
_MOST_BYTES = 8 << 20  # of an integer constant whose range is read

INT8, UINT8, INT64, UINT64 = 3, 2, 7, 13  # of TensorProto.DataType

DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
}


@dataclass(frozen=True)
class Constant:
    """An initializer, or the tensor of an attribute.

    Attributes:
        name: its name.
        data_type: of TensorProto.DataType.
        shape: its axes.
        values: its elements, if it is an integer tensor of 64 bits whose data are in the file; otherwise None.
    """

    name: str
    data_type: int
    shape: tuple[int, ...]
    values: array[int] | None = field(repr=False, default=None)


@dataclass(frozen=True)
class Port:
    """An input, an output, or a tensor whose type the file declares. Axes are None if they have no fixed length."""

    name: str
    data_type: int = 0
    shape: tuple[int | None, ...] | None = None


Attribute = Union[int, str, "tuple[int, ...]", "tuple[str, ...]", Constant, "Body", None]


@dataclass(frozen=True)
class Node:
    """A node. `opset` is the version of its domain; an attribute of another kind than Attribute is None."""

    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    opset: int

    def integer(self, name: str, default: int = 0) -> int:
        value = self.attributes.get(name)
        return value if isinstance(value, int) else default

    def text(self, name: str, default: str = "") -> str:
        value = self.attributes.get(name)
        return value if isinstance(value, str) else default

    def integers(self, name: str) -> tuple[int, ...]:
        value = self.attributes.get(name)
        return tuple(each for each in value if isinstance(each, int)) if isinstance(value, tuple) else ()

    def input(self, index: int) -> str:
        """Return the name of an input, "" if it is left out."""
        return self.inputs[index] if index < len(self.inputs) else ""


@dataclass(frozen=True)
class Body:
    """The main graph, a subgraph, or a local function."""

    own_nodes: tuple[Node, ...]
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    ports: Mapping[str, Port] = field(default_factory=dict)  # declared types, those of inputs and outputs included
    constants: Mapping[str, Constant] = field(default_factory=dict)

    def bodies(self) -> Iterator[Body]:
        """Yield this body and those of its subgraphs."""
        yield self
        for node in self.own_nodes:
            for value in node.attributes.values():
                if isinstance(value, Body):
                    yield from value.bodies()


@dataclass(frozen=True)
class Graph:
    """An ONNX file.

    Attributes:
        main: the main graph.
        functions: the local functions.
        opsets: version by domain; "" is that of ONNX.
        ir_version: of the file.
    """

    main: Body
    functions: tuple[Body, ...]
    opsets: Mapping[str, int]
    ir_version: int

    def bodies(self) -> Iterator[Body]:
        yield from self.main.bodies()
        for function in self.functions:
            yield from function.bodies()

    def nodes(self) -> Iterator[Node]:
        """Yield all nodes, those of subgraphs and local functions included."""
        for body in self.bodies():
            yield from body.own_nodes


def read_graph(path: str | os.PathLike[str]) -> Graph:
    """Read an ONNX file that `hami_model_check.onnx.read_onnx` has accepted; an unchanged file is not read again.

    Raises:
        ValueError: the file is damaged.
        OSError: the file cannot be read.
    """
    status = os.stat(path)
    return _read(os.path.realpath(path), (status.st_mtime_ns, status.st_size, status.st_ino))


@functools.lru_cache(maxsize=16)
def _read(path: str, stamp: tuple[int, ...]) -> Graph:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _Decoder(data).model(len(data))
        except OverflowError:
            raise ValueError("it has too many fields") from None


class _Decoder:
    def __init__(self, data: Data) -> None:
        self._data = data
        self._reader = Reader(data, _MOST_FIELDS)

    def model(self, size: int) -> Graph:
        fields = list(self._reader.fields(0, size))
        opsets = dict(self._opset(begin, end) for number, begin, end in fields if number == 8)
        versions = [value for _, value in self._reader.numbers(0, size, 1)]
        main = Body(())
        functions = []
        for number, begin, end in fields:
            if number == 7:
                main = self._graph(begin, end, opsets)
            elif number == 25:
                functions.append(self._function(begin, end, opsets))
        return Graph(main, tuple(functions), opsets, versions[-1] if versions else 0)

    def _opset(self, begin: int, end: int) -> tuple[str, int]:
        domain, version = "", 0
        for number, start, stop in self._reader.fields(begin, end):
            if number == 1:
                domain = self._text(start, stop)
        for _, value in self._reader.numbers(begin, end, 2):
            version = value
        return "" if domain == "ai.onnx" else domain, version

    def _function(self, begin: int, end: int, outer: Mapping[str, int]) -> Body:
        fields = list(self._reader.fields(begin, end))
        opsets = {**outer, **dict(self._opset(start, stop) for number, start, stop in fields if number == 9)}
        named = {4: [], 5: []}  # type: dict[int, list[Port]]
        for number, start, stop in fields:
            if number in named:
                named[number].append(Port(self._text(start, stop)))
        nodes = tuple(self._node(start, stop, opsets) for number, start, stop in fields if number == 7)
        return Body(nodes, tuple(named[4]), tuple(named[5]))

    def _graph(self, begin: int, end: int, opsets: Mapping[str, int]) -> Body:
        nodes: list[Node] = []
        inputs: list[Port] = []
        outputs: list[Port] = []
        ports: dict[str, Port] = {}
        constants: dict[str, Constant] = {}
        for number, start, stop in self._reader.fields(begin, end):
            if number == 1:
                nodes.append(self._node(start, stop, opsets))
            elif number == 5:
                constant = self._tensor(start, stop)
                constants[constant.name] = constant
            elif number in (11, 12, 13):
                port = self._port(start, stop)
                ports[port.name] = port
                if number == 11:
                    inputs.append(port)
                elif number == 12:
                    outputs.append(port)
        return Body(tuple(nodes), tuple(inputs), tuple(outputs), ports, constants)

    def _node(self, begin: int, end: int, opsets: Mapping[str, int]) -> Node:
        texts: dict[int, str] = {}
        inputs: list[str] = []
        outputs: list[str] = []
        attributes: dict[str, Attribute] = {}
        for number, start, stop in self._reader.fields(begin, end):
            if number == 1:
                inputs.append(self._text(start, stop))
            elif number == 2:
                outputs.append(self._text(start, stop))
            elif number == 5:
                name, value = self._attribute(start, stop, opsets)
                attributes[name] = value
            elif number in (3, 4, 7):
                texts[number] = self._text(start, stop)
        domain = texts.get(7, "")
        domain = "" if domain == "ai.onnx" else domain
        return Node(
            texts.get(4, ""),
            domain,
            texts.get(3, ""),
            tuple(inputs),
            tuple(outputs),
            attributes,
            opsets.get(domain, 0),
        )

    def _attribute(self, begin: int, end: int, opsets: Mapping[str, int]) -> tuple[str, Attribute]:
        name = ""
        value: Attribute = None
        texts: list[str] = []
        for number, start, stop in self._reader.fields(begin, end):
            if number == 1:
                name = self._text(start, stop)
            elif number == 4:
                value = self._text(start, stop)
            elif number == 5:
                value = self._tensor(start, stop)
            elif number == 6:
                value = self._graph(start, stop, opsets)
            elif number == 9:
                texts.append(self._text(start, stop))
        if texts:
            return name, tuple(texts)
        if value is None:
            numbers = list(self._reader.numbers(begin, end, 3, 8))
            whole = [_signed(each) for number, each in numbers if number == 8]
            single = [_signed(each) for number, each in numbers if number == 3]
            value = tuple(whole) if whole else single[-1] if single else None
        return name, value

    def _tensor(self, begin: int, end: int) -> Constant:
        name = ""
        raw = None
        for number, start, stop in self._reader.fields(begin, end):
            if number == 8:
                name = self._text(start, stop)
            elif number == 9:
                raw = (start, stop)
        data_type = 0
        shape: list[int] = []
        for number, value in self._reader.numbers(begin, end, 1, 2):
            if number == 1:
                shape.append(value)
            else:
                data_type = value
        return Constant(name, data_type, tuple(shape), self._integers(begin, end, data_type, raw))

    def _integers(self, begin: int, end: int, data_type: int, raw: tuple[int, int] | None) -> array[int] | None:
        if data_type not in (INT64, UINT64) or end - begin > _MOST_BYTES:
            return None
        values = array("Q" if data_type == UINT64 else "q")
        if raw is not None:
            start, stop = raw
            values.frombytes(self._data[start : stop - (stop - start) % 8])
            if sys.byteorder == "big":
                values.byteswap()
            return values
        for _, value in self._reader.numbers(begin, end, 11 if data_type == UINT64 else 7):
            values.append(value if data_type == UINT64 else _signed(value))
        return values

    def _port(self, begin: int, end: int) -> Port:
        name, data_type = "", 0
        shape: tuple[int | None, ...] | None = None
        for number, start, stop in self._reader.fields(begin, end):
            if number == 1:
                name = self._text(start, stop)
            elif number == 2:
                for kind, first, last in self._reader.fields(start, stop):
                    if kind == 1:  # tensor_type
                        data_type, shape = self._tensor_type(first, last)
        return Port(name, data_type, shape)

    def _tensor_type(self, begin: int, end: int) -> tuple[int, tuple[int | None, ...] | None]:
        data_type = 0
        for _, value in self._reader.numbers(begin, end, 1):
            data_type = value
        for number, start, stop in self._reader.fields(begin, end):
            if number == 2:
                dims = (field[1:] for field in self._reader.fields(start, stop) if field[0] == 1)
                return data_type, tuple(self._length(first, last) for first, last in dims)
        return data_type, None

    def _length(self, begin: int, end: int) -> int | None:
        """Return the length of an axis; some exporters write -1 for a free one."""
        for _, value in self._reader.numbers(begin, end, 1):
            return _signed(value) if _signed(value) >= 0 else None
        return None

    def _text(self, begin: int, end: int) -> str:
        return self._data[begin:end].decode("utf-8", "backslashreplace")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
