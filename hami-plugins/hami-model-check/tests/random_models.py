"""Makes random models of a few operators, whose batch axis moves, is merged with others, split again, or lost."""

from __future__ import annotations

import math
import random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROWS = 6
_OPSETS = (11, 13, 17, 18)
_MOST_ELEMENTS = 20_000


class RandomModel:
    """A model of up to eight random steps, each of which uses results of earlier ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.opset = self.random.choice(_OPSETS)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: dict[str, tuple[list[int], int]] = {}
        self.known: list[tuple[str, list[int]]] = []
        self._names = 0
        for at in range(self.random.choice([1, 1, 2])):
            shape = [self.random.choice([1, 2, 3, 4, 6]) for _ in range(self.random.randint(1, 4))]
            axis = self.random.choice([0, 0, self.random.randrange(len(shape))])
            shape[axis] = ROWS
            self.inputs[f"x{at}"] = (shape, axis)
            self.known.append((f"x{at}", shape))
        for _ in range(self.random.randint(1, 8)):
            self._step()

    @property
    def axes(self) -> dict[str, int | None]:
        return {name: axis for name, (_, axis) in self.inputs.items()}

    def feeds(self) -> dict[str, np.ndarray]:
        return {name: self._floats(shape) for name, (shape, _) in self.inputs.items()}

    def build(self, rows: int | str) -> onnx.ModelProto:
        """Return the model, with the last result as its output."""
        given = [
            helper.make_tensor_value_info(
                name, TensorProto.FLOAT, [rows if at == axis else length for at, length in enumerate(shape)]
            )
            for name, (shape, axis) in self.inputs.items()
        ]
        result = helper.make_empty_tensor_value_info(self.known[-1][0])
        result.type.tensor_type.elem_type = TensorProto.FLOAT
        graph = helper.make_graph(self.nodes, "random", given, [result], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def _step(self) -> None:
        before = len(self.nodes), len(self.constants)
        name, shape = self.random.choice(self.known)
        try:
            result = self.random.choice(STEPS)(self, name, shape)
            self.known.append((result, []))
            self.known[-1] = (result, self._shape_of(result))
        except (ValueError, IndexError, onnx.shape_inference.InferenceError):
            del self.nodes[before[0] :], self.constants[before[1] :]
            self.known = [each for each in self.known if each[1]]

    def _shape_of(self, name: str) -> list[int]:
        inferred = onnx.shape_inference.infer_shapes(self.build(ROWS), strict_mode=True, data_prop=True)
        (result,) = (value for value in inferred.graph.output if value.name == name)
        shape = [axis.dim_value for axis in result.type.tensor_type.shape.dim]
        if not shape or not all(shape) or math.prod(shape) > _MOST_ELEMENTS:
            raise ValueError
        return shape

    def _name(self) -> str:
        self._names += 1
        return f"t{self._names}"

    def node(self, operator: str, *inputs: str, outputs: int = 1, **attributes) -> str:
        names = [self._name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return self.random.choice(names)

    def constant(self, value) -> str:
        name = self._name()
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def _floats(self, shape) -> np.ndarray:
        return self.numbers.standard_normal(shape).astype(np.float32)

    def weights(self, *shape: int) -> str:
        return self.constant(self._floats(shape))

    def other(self) -> str:
        return self.random.choice(self.known)[0]

    def axis(self, shape: list[int]) -> int:
        return self.random.randrange(len(shape))

    def lengths(self, name: str, shape: list[int]) -> list[str]:
        """Return the computed length of each axis."""
        whole = self.node("Shape", name)
        return [self.node("Gather", whole, self.ints(at)) for at in range(len(shape))]

    def along(self, operator: str, name: str, axes: list[int], **attributes) -> str:
        """Return a node that takes axes as an attribute or as an input, as the opset wants."""
        as_input = self.opset >= 18 or (self.opset >= 13 and operator in ("ReduceSum", "Squeeze", "Unsqueeze"))
        if as_input:
            return self.node(operator, name, self.ints(*axes), **attributes)
        return self.node(operator, name, axes=axes, **attributes)


def _merge(m: RandomModel, name: str, shape: list[int]) -> str:
    at = m.random.randrange(len(shape) - 1)
    way = m.random.randrange(3)
    if way == 0:
        return m.node("Reshape", name, m.ints(*[0] * at, -1, *shape[at + 2 :]))
    if way == 1:
        return m.node("Reshape", name, m.ints(*shape[:at], -1, *shape[at + 2 :]))
    parts = m.lengths(name, shape)
    parts[at : at + 2] = [m.node("Mul", *parts[at : at + 2])]
    return m.node("Reshape", name, m.node("Concat", *parts, axis=0))


def _split_axis(m: RandomModel, name: str, shape: list[int]) -> str:
    at = m.random.choice([at for at, length in enumerate(shape) if length % 2 == 0])
    parts = m.lengths(name, shape)
    two = m.ints(2)
    half = m.node("Div", parts[at], two) if m.random.random() < 0.5 else m.ints(-1)
    parts[at : at + 1] = m.random.sample([two, half], 2)
    return m.node("Reshape", name, m.node("Concat", *parts, axis=0))


def _slice(m: RandomModel, name: str, shape: list[int]) -> str:
    ranges = [(0, 1 << 40, 1), (0, 2, 1), (1, 1 << 40, 1), (-1, -(1 << 40), -1), (0, ROWS, 1)]
    begin, end, step = m.random.choice(ranges)
    return m.node("Slice", name, m.ints(begin), m.ints(end), m.ints(m.axis(shape)), m.ints(step))


def _attention(m: RandomModel, name: str, shape: list[int]) -> str:
    order = list(range(len(shape)))
    order[-2:] = order[-1], order[-2]
    return m.node("MatMul", name, m.node("Transpose", name, perm=order))


def _gather_elements(m: RandomModel, name: str, shape: list[int]) -> str:
    axis = m.axis(shape)
    return m.node("GatherElements", m.other(), m.node("ArgMax", name, axis=axis, keepdims=1), axis=axis)


def _scatter(m: RandomModel, name: str, shape: list[int]) -> str:
    axis = m.axis(shape)
    places = m.node("ArgMax", name, axis=axis, keepdims=1)
    return m.node("ScatterElements", name, places, m.along("ReduceMax", name, [axis]), axis=axis)


def _tile_rows(m: RandomModel, name: str, shape: list[int]) -> str:
    repeats = [m.ints(1)] * len(shape)
    repeats[m.axis(shape)] = m.random.choice(m.lengths(*m.random.choice(m.known)))
    return m.node("Tile", name, m.node("Concat", *repeats, axis=0))


def _einsum(m: RandomModel, name: str, shape: list[int]) -> str:
    letters = "ijkl"
    left, right = letters[: len(shape)], "".join(m.random.sample(letters, len(m.known[0][1])))
    kept = [letter for letter in sorted({*left, *right}) if m.random.random() < 0.7]
    return m.node("Einsum", name, m.known[0][0], equation=f"{left},{right}->{''.join(kept)}")


def _scan(m: RandomModel, name: str, shape: list[int]) -> str:
    def values(*names: str) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(each, TensorProto.FLOAT, None) for each in names]

    steps = [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Identity", ["t"], ["o"])]
    body = helper.make_graph(steps, "body", values("s", "e"), values("t", "o"))
    axis = m.axis(shape)
    start = m.along("ReduceMax", name, [axis], keepdims=0)
    return m.node("Scan", start, name, outputs=2, body=body, num_scan_inputs=1, scan_input_axes=[axis])


def _size(m: RandomModel, name: str, shape: list[int]) -> str:
    return m.node("Mul", name, m.node("Cast", m.random.choice(m.lengths(name, shape)), to=TensorProto.FLOAT))


def _bias(m: RandomModel, name: str, shape: list[int]) -> str:
    lengths = [length if m.random.random() < 0.6 else 1 for length in shape]
    return m.node("Add", name, m.weights(*lengths[m.random.randrange(len(shape)) :]))


def _recurrent(m: RandomModel, name: str, shape: list[int]) -> str:
    _, _, features = shape
    return m.node("RNN", name, m.weights(1, 2, features), m.weights(1, 2, 2), outputs=2, hidden_size=2)


def _gemm(m: RandomModel, name: str, shape: list[int]) -> str:
    rows, columns = shape
    turned = m.random.randint(0, 1)
    added = m.weights(*m.random.choice([(3,), (1, 3), (ROWS, 1)]))
    return m.node("Gemm", name, m.weights(rows if turned else columns, 3), added, transA=turned)


STEPS = [
    lambda m, x, s: m.node(m.random.choice(["Relu", "Neg", "Tanh"]), x),
    lambda m, x, s: m.node("Transpose", x, perm=m.random.sample(range(len(s)), len(s))),
    lambda m, x, s: m.node("Transpose", x),
    _merge,
    _merge,
    _split_axis,
    lambda m, x, s: m.node("Reshape", x, m.node("Shape", m.other())),
    lambda m, x, s: m.node("Reshape", x, m.node("Shape", m.other())),
    lambda m, x, s: m.node("Reshape", x, m.ints(-1, m.random.choice([1, 2, 3, 6]))),
    lambda m, x, s: m.node(m.random.choice(["Softmax", "LogSoftmax"]), x, axis=m.axis(s)),
    lambda m, x, s: m.along("ReduceSum", x, [m.axis(s)], keepdims=m.random.randint(0, 1)),
    lambda m, x, s: m.along("ReduceMax", x, [m.axis(s)], keepdims=m.random.randint(0, 1)),
    lambda m, x, s: m.node(m.random.choice(["Add", "Mul", "Sub"]), x, m.other()),
    _bias,
    lambda m, x, s: m.node("MatMul", x, m.weights(s[-1], 3)),
    lambda m, x, s: m.node("MatMul", m.weights(2, s[-2]), x),
    lambda m, x, s: m.node("MatMul", x, m.other()),
    _attention,
    _gemm,
    lambda m, x, s: m.node("Concat", x, m.other(), axis=m.axis(s)),
    _slice,
    lambda m, x, s: m.node("Gather", x, m.constant(np.int64(m.random.choice([0, -1]))), axis=m.axis(s)),
    lambda m, x, s: m.node("Gather", x, m.ints(0, 0), axis=m.axis(s)),
    lambda m, x, s: m.node("Expand", x, m.node("Shape", m.other())),
    lambda m, x, s: m.node("Expand", m.weights(1), m.node("Shape", x)),
    lambda m, x, s: m.node("ConstantOfShape", m.node("Shape", x)),
    lambda m, x, s: m.node("Tile", x, m.ints(*m.random.sample([2, *[1] * (len(s) - 1)], len(s)))),
    _tile_rows,
    lambda m, x, s: m.node("CumSum", x, m.constant(np.int64(m.axis(s)))),
    lambda m, x, s: m.node("Flatten", x, axis=m.axis(s)),
    lambda m, x, s: m.along("Unsqueeze", x, [m.random.randrange(len(s) + 1)]),
    lambda m, x, s: m.along("Squeeze", x, [s.index(1)]),
    lambda m, x, s: m.node("Cast", m.node("ArgMax", x, axis=m.axis(s)), to=TensorProto.FLOAT),
    lambda m, x, s: m.node("Conv", x, m.weights(2, s[1], *[1] * (len(s) - 2))),
    lambda m, x, s: m.node("GlobalAveragePool", x) if len(s) > 2 else m.node("LpNormalization", x, axis=m.axis(s)),
    lambda m, x, s: m.node("LpNormalization", x, axis=m.axis(s)),
    lambda m, x, s: m.node("Pad", x, m.ints(*m.random.sample([1, *[0] * (2 * len(s) - 1)], 2 * len(s)))),
    lambda m, x, s: m.node("Where", m.node("Greater", x, m.other()), m.other(), x),
    _recurrent,
    _einsum,
    _gather_elements,
    _scatter,
    _scan,
    _size,
]
