"""Graph: the nodes of an ONNX model in order, what is live between them, and models made of some of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import onnx
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from hami_accel.specs import Quantization


class Graph:
    """A model whose shapes are fixed and whose local functions are inlined."""

    def __init__(self, model: ModelProto) -> None:
        self.model = onnx.shape_inference.infer_shapes(model)
        graph = self.model.graph
        self.nodes: list[NodeProto] = list(graph.node)
        for number, node in enumerate(self.nodes):
            node.name = f"hami_{number}"  # unique, for the profile
        self.weights = {tensor.name: tensor for tensor in graph.initializer}
        self.outputs = [value.name for value in graph.output]
        self.types = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
        self.reads = [{name for name in read_names(node) if name not in self.weights} for node in self.nodes]
        self.last_use: dict[str, int] = {}
        for number, names in enumerate(self.reads):
            self.last_use.update(dict.fromkeys(names, number))

    def live_bytes(self) -> list[int | None]:
        """Return, for the border after each node, the bytes of the tensors that cross it; None: no border there."""
        result: list[int | None] = []
        live: dict[str, int | None] = {}
        for number, node in enumerate(self.nodes):
            for name in node.output:
                if self.last_use.get(name, -1) > number:
                    live[name] = self._size(name)
            live = {name: size for name, size in live.items() if self.last_use[name] > number}
            sizes = list(live.values())
            result.append(None if None in sizes else sum(size or 0 for size in sizes))
        return result

    def piece(self, start: int, end: int) -> ModelProto:
        """Return a model of the nodes from `start` to before `end`. Its ports cross its borders."""
        nodes = self.nodes[start:end]
        made = {name for node in nodes for name in node.output if name}
        needed = sorted(set().union(*self.reads[start:end]) - made)
        given = [
            name for node in nodes for name in node.output if name in self.outputs or self.last_use.get(name, -1) >= end
        ]
        if end == len(self.nodes):
            given += [name for name in self.outputs if name in self.weights]
        weights = {name for node in nodes for name in read_names(node) if name in self.weights}
        weights.update(name for name in given if name in self.weights)
        graph = helper.make_graph(
            nodes,
            f"piece_{start}_{end}",
            [self._port(name) for name in needed],
            [self._port(name) for name in dict.fromkeys(given)],
            [self.weights[name] for name in sorted(weights)],
        )
        return helper.make_model(
            graph, opset_imports=self.model.opset_import, ir_version=self.model.ir_version, producer_name="hami-accel"
        )

    def last_uses(self, start: int, end: int) -> list[str]:
        """Return the tensors that the nodes from `start` to before `end` are the last to read."""
        return [name for name, last in self.last_use.items() if start <= last < end and name not in self.outputs]

    def quantization(self, name: str) -> Quantization | None:
        """Return the scale of an input that is dequantised, or of an output that is quantised, at once."""
        for node in self.nodes:
            dequantized = node.op_type == "DequantizeLinear" and node.input[0] == name
            if dequantized or (node.op_type == "QuantizeLinear" and node.output[0] == name):
                scale = self.weights.get(node.input[1])
                zero = self.weights.get(node.input[2]) if len(node.input) > 2 else None
                if scale is None or math.prod(scale.dims) != 1:
                    return None
                zero_point = 0 if zero is None else int(numpy_helper.to_array(zero).reshape(-1)[0])
                return Quantization(float(numpy_helper.to_array(scale).reshape(-1)[0]), zero_point)
        return None

    def _port(self, name: str) -> Any:
        known = self.types.get(name)
        return onnx.ValueInfoProto(name=name) if known is None else known

    def _size(self, name: str) -> int | None:
        """Return the bytes of a tensor; None if its type is not known, so that it cannot be the input of a piece."""
        known = self.types.get(name)
        if known is None or not known.type.HasField("tensor_type") or not known.type.tensor_type.elem_type:
            return None
        tensor = known.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.hasobject:
            return None
        elements: int = math.prod(max(axis.dim_value, 1) for axis in tensor.shape.dim)
        return elements * int(dtype.itemsize)


def read_names(node: NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, also those that its subgraphs read from outside of them."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from _captured(graph)


def _captured(graph: GraphProto) -> Iterator[str]:
    own = {value.name for value in (*graph.input, *graph.initializer)}
    for node in graph.node:
        yield from (name for name in read_names(node) if name not in own)
        own.update(node.output)
    yield from (value.name for value in graph.output if value.name not in own)


def set_shapes(model: ModelProto, shapes: Sequence[tuple[str, Sequence[int]]]) -> None:
    """Fix the shapes of inputs, and forget the shapes that follow from them."""
    by_name = {value.name: value for value in model.graph.input}
    for name, shape in shapes:
        dims = by_name[name].type.tensor_type.shape
        del dims.dim[:]
        for size in shape:
            dims.dim.add().dim_value = size
    del model.graph.value_info[:]
    for value in model.graph.output:
        for axis in value.type.tensor_type.shape.dim:
            if axis.HasField("dim_param"):
                axis.Clear()
