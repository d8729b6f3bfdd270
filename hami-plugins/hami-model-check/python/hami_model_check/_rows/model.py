"""The nodes of an ONNX file, with their attributes and small constants; weights are not read."""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

from hami_model_check._protobuf import Data, Reader
from hami_model_check._rows.value import MAX_ELEMENTS, Element, Value

_MAX_ATTRIBUTE_BYTES = 4096  # a longer list of numbers is not decoded: no rule needs it

# struct codes and the field of TensorProto that holds the elements, by TensorProto.DataType.
_CODES = {1: "f", 2: "B", 3: "b", 4: "H", 5: "h", 6: "i", 7: "q", 9: "?", 10: "e", 11: "d", 12: "I", 13: "Q"}
_IN_INT32 = {2, 3, 4, 5, 6, 9}
_PACKED = {1: (4, "f"), 11: (10, "d")}


class Reference(NamedTuple):
    """An attribute of a function's node that takes its value from an attribute of the call."""

    name: str


class Undecoded(NamedTuple):
    """An attribute that no rule needs: a long list, a list of tensors, a type."""


class Import(NamedTuple):
    domain: str
    version: int


class Axis(NamedTuple):
    """An axis of a graph input: its length, or its name, or neither."""

    length: int | None
    name: str


class Input(NamedTuple):
    name: str
    axes: tuple[Axis, ...] | None  # None: the number of axes is not known
    is_tensor: bool


class Node:
    __slots__ = ("attributes", "domain", "inputs", "name", "operator", "outputs", "overload")

    def __init__(self) -> None:
        self.operator = self.domain = self.name = self.overload = ""
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.attributes: dict[str, object] = {}


class Graph:
    """A graph or the body of a function: nodes in topological order, constants by name."""

    __slots__ = ("constants", "inputs", "nodes", "outputs")

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, Value] = {}
        self.inputs: list[Input] = []
        self.outputs: list[str] = []


class Function(NamedTuple):
    graph: Graph
    imports: dict[str, int]
    attributes: frozenset[str]  # without a default
    defaults: dict[str, object]


FunctionName = tuple[str, str, str]  # domain, name, overload


class Model(NamedTuple):
    graph: Graph
    imports: dict[str, int]
    functions: dict[FunctionName, Function]
    ir_version: int


def load(data: Data, max_fields: int) -> Model:
    """Read a file that read_onnx has accepted.

    Raises:
        ValueError, OverflowError: as Reader.
    """
    return _Loader(data, max_fields).model(len(data))


class _Loader:
    def __init__(self, data: Data, max_fields: int) -> None:
        self._data = data
        self._reader = Reader(data, max_fields)

    def model(self, size: int) -> Model:
        graph = Graph()
        imports: dict[str, int] = {}
        functions: dict[FunctionName, Function] = {}
        ir_version = 0
        for number, begin, end in self._reader.every(0, size):
            if number == -1:
                ir_version = begin
            elif number == 7:
                if graph.outputs:
                    raise ValueError("it has two graphs")
                graph = self._graph(begin, end)
            elif number == 8:
                domain, version = self._import(begin, end)
                imports[domain] = version
            elif number == 25:
                name, function = self._function(begin, end)
                functions[name] = function
        return Model(graph, imports, functions, ir_version)

    def _text(self, begin: int, end: int) -> str:
        return self._data[begin:end].decode("utf-8", "backslashreplace")

    def _import(self, begin: int, end: int) -> Import:
        domain, version = "", 0
        for number, start, stop in self._reader.every(begin, end):
            if number == 1:
                domain = self._text(start, stop)
            elif number == -2:
                version = start
        return Import(_domain(domain), version)

    def _function(self, begin: int, end: int) -> tuple[FunctionName, Function]:
        graph = Graph()
        name = domain = overload = ""
        imports: dict[str, int] = {}
        attributes: set[str] = set()
        defaults: dict[str, object] = {}
        for number, start, stop in self._reader.every(begin, end):
            if number == 1:
                name = self._text(start, stop)
            elif number == 4:
                graph.inputs.append(Input(self._text(start, stop), None, True))
            elif number == 5:
                graph.outputs.append(self._text(start, stop))
            elif number == 6:
                attributes.add(self._text(start, stop))
            elif number == 7:
                graph.nodes.append(self._node(start, stop))
            elif number == 9:
                imported, version = self._import(start, stop)
                imports[imported] = version
            elif number == 10:
                domain = _domain(self._text(start, stop))
            elif number == 11:
                attribute, value = self._attribute(start, stop)
                defaults[attribute] = value
            elif number == 13:
                overload = self._text(start, stop)
        graph.nodes = _sorted(graph.nodes)
        return (domain, name, overload), Function(graph, imports, frozenset(attributes), defaults)

    def _graph(self, begin: int, end: int) -> Graph:
        graph = Graph()
        for number, start, stop in self._reader.every(begin, end):
            if number == 1:
                graph.nodes.append(self._node(start, stop))
            elif number == 5:
                name, value = self._tensor(start, stop)
                graph.constants[name] = value
            elif number == 11:
                graph.inputs.append(self._input(start, stop))
            elif number == 12:
                graph.outputs.append(self._input(start, stop).name)
            elif number == 15:
                name, value = self._sparse_tensor(start, stop)
                graph.constants[name] = value
        graph.nodes = _sorted(graph.nodes)
        return graph

    def _node(self, begin: int, end: int) -> Node:
        node = Node()
        for number, start, stop in self._reader.every(begin, end):
            if number == 1:
                node.inputs.append(self._text(start, stop))
            elif number == 2:
                node.outputs.append(self._text(start, stop))
            elif number == 3:
                node.name = self._text(start, stop)
            elif number == 4:
                node.operator = self._text(start, stop)
            elif number == 5:
                name, value = self._attribute(start, stop)
                node.attributes[f"{name}, twice" if name in node.attributes else name] = value
            elif number == 7:
                node.domain = _domain(self._text(start, stop))
            elif number == 8:
                node.overload = self._text(start, stop)
        return node

    def _attribute(self, begin: int, end: int) -> tuple[str, object]:
        name = ""
        reference = ""
        value: object = None
        if end - begin > _MAX_ATTRIBUTE_BYTES:
            fields = self._reader.fields(begin, end)  # skips lists of numbers
            value = Undecoded()
        else:
            fields = self._reader.every(begin, end)
            value = self._numbers(begin, end)
        strings: list[bytes] = []
        for number, start, stop in fields:
            if number == 1:
                name = self._text(start, stop)
            elif number == 4:
                value = self._text(start, stop)
            elif number == 5:
                value = self._tensor(start, stop)[1]
            elif number == 6:
                value = self._graph(start, stop)
            elif number == 9:
                strings.append(self._data[start:stop])
                value = strings
            elif number in (10, 11, 14, 15, 23):
                value = Undecoded()
            elif number == 21:
                reference = self._text(start, stop)
            elif number == 22:
                value = self._sparse_tensor(start, stop)[1]
        return name, Reference(reference) if reference else value

    def _numbers(self, begin: int, end: int) -> object:
        """Return the numbers of an attribute: f, i, floats, or ints; an empty list if it has none of them."""
        data = self._data[begin:end]
        at = 0
        ints: list[int] = []
        floats: list[float] = []
        single: object = None
        kind = 0
        while at < len(data):
            tag, at = _varint(data, at)
            wire_type = tag & 7
            if wire_type == 0:
                value, at = _varint(data, at)
                if tag >> 3 == 3:
                    single = _signed(value)
                elif tag >> 3 == 8:
                    ints.append(_signed(value))
                elif tag >> 3 == 20:
                    kind = value
            elif wire_type == 5:
                if tag >> 3 == 2:
                    single = struct.unpack_from("<f", data, at)[0]
                elif tag >> 3 == 7:
                    floats.append(struct.unpack_from("<f", data, at)[0])
                at += 4
            elif wire_type == 1:
                at += 8
            else:
                length, at = _varint(data, at)
                if tag >> 3 == 8:
                    ints += _packed_varints(data, at, at + length)
                elif tag >> 3 == 7:
                    floats += [number for (number,) in struct.iter_unpack("<f", data[at : at + length - length % 4])]
                at += length
        if kind in (1, 2) and single is None:
            return 0.0 if kind == 1 else 0
        return single if single is not None else ints or floats or []

    def _sparse_tensor(self, begin: int, end: int) -> tuple[str, Value]:
        name = ""
        dimensions: list[int] = []
        for number, start, stop in self._reader.every(begin, end):
            if number == 1:
                name = self._tensor(start, stop)[0]
            elif number == -3:
                dimensions.append(start)
            elif number == 3:
                dimensions += _packed_varints(self._data[start:stop], 0, stop - start)
        return name, Value(tuple(dimensions))

    def _tensor(self, begin: int, end: int) -> tuple[str, Value]:
        name = ""
        dimensions: list[int] = []
        data_type = 0
        parts: dict[int, list[tuple[int, int]]] = {}
        for number, start, stop in self._reader.every(begin, end):
            if number == -1:
                dimensions.append(start)
            elif number == -2:
                data_type = start
            elif number == 1:
                dimensions += _packed_varints(self._data[start:stop], 0, stop - start)
            elif number == 8:
                name = self._text(start, stop)
            elif number > 0:
                parts.setdefault(number, []).append((start, stop))
        count = math.prod(dimensions)
        elements = self._elements(data_type, count, parts) if count <= MAX_ELEMENTS else None
        return name, Value(tuple(dimensions), elements=elements)

    def _elements(self, data_type: int, count: int, parts: dict[int, list[tuple[int, int]]]) -> list[Element] | None:
        code = _CODES.get(data_type)
        if code is None or 13 in parts:  # external
            return None
        found: list[Element]
        if 9 in parts:
            ((start, stop),) = parts[9][-1:]
            found = [number for (number,) in struct.iter_unpack("<" + code, self._data[start:stop])]
        elif data_type in _PACKED:
            number, code = _PACKED[data_type]
            raw = b"".join(self._data[start:stop] for start, stop in parts.get(number, ()))
            found = [value for (value,) in struct.iter_unpack("<" + code, raw)]
        else:
            number = 5 if data_type in _IN_INT32 else 7 if data_type == 7 else 11
            found = []
            for start, stop in parts.get(number, ()):
                found += _packed_varints(self._data[start:stop], 0, stop - start)
            if data_type == 10:
                return None
            if data_type == 9:
                found = [bool(value) for value in found]
        return found if len(found) == count else None

    def _input(self, begin: int, end: int) -> Input:
        name = ""
        axes: tuple[Axis, ...] | None = None
        is_tensor = True
        for number, start, stop in self._reader.every(begin, end):
            if number == 1:
                name = self._text(start, stop)
            elif number == 2:
                for kind, first, last in self._reader.every(start, stop):
                    if kind == 1:
                        axes = self._axes(first, last)
                    elif kind > 1 and kind != 6:  # 6: denotation
                        is_tensor = False
        return Input(name, axes, is_tensor)

    def _axes(self, begin: int, end: int) -> tuple[Axis, ...] | None:
        for number, start, stop in self._reader.every(begin, end):
            if number == 2:
                return tuple(
                    self._axis(first, last) for kind, first, last in self._reader.every(start, stop) if kind == 1
                )
        return None

    def _axis(self, begin: int, end: int) -> Axis:
        length: int | None = None
        name = ""
        for number, start, stop in self._reader.every(begin, end):
            if number == -1:
                length = _signed(start)
            elif number == 2:
                name = self._text(start, stop)
        return Axis(length if length is not None and length > 0 else None, name)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number does not end")


def _packed_varints(data: bytes, at: int, end: int) -> list[int]:
    found = []
    while at < end:
        value, at = _varint(data, at)
        found.append(_signed(value))
    return found


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def names_used(node: Node) -> set[str]:
    """Return the inputs of a node, and what its subgraphs use from outside."""
    used = {name for name in node.inputs if name}
    for value in node.attributes.values():
        if isinstance(value, Graph):
            own = {graph_input.name for graph_input in value.inputs} | value.constants.keys()
            for inner in value.nodes:
                own.update(inner.outputs)
            used |= set(value.outputs).union(*map(names_used, value.nodes)) - own
    return used


def _sorted(nodes: list[Node]) -> list[Node]:
    """Return the nodes in topological order. read_onnx has refused cycles."""
    provider = {name: index for index, node in enumerate(nodes) for name in node.outputs if name}
    uses = [{provider[name] for name in names_used(node) if name in provider} for node in nodes]
    if all(index > max(used, default=-1) for index, used in enumerate(uses)):
        return nodes
    waiting = [len(used) for used in uses]
    users: dict[int, list[int]] = {}
    for index, used in enumerate(uses):
        for other in used:
            users.setdefault(other, []).append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    done = []
    while ready:
        index = ready.pop()
        done.append(nodes[index])
        for user in users.get(index, ()):
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    if len(done) < len(nodes):
        raise ValueError("its nodes depend on each other in a cycle")
    return done
