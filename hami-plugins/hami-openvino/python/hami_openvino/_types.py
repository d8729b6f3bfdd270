"""Types: element types and numbers of axes of the tensors of a graph, as far as the file and simple operators tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from hami_model_check.graph import Body, Constant, Node

_SAME = {
    *("Identity", "Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Gelu", "Sigmoid", "HardSigmoid", "HardSwish"),
    *(
        "Tanh",
        "Softplus",
        "Softsign",
        "Mish",
        "Exp",
        "Log",
        "Sqrt",
        "Reciprocal",
        "Neg",
        "Abs",
        "Sign",
        "Floor",
        "Ceil",
    ),
    *(
        "Round",
        "Erf",
        "Clip",
        "Dropout",
        "Softmax",
        "LogSoftmax",
        "Hardmax",
        "BatchNormalization",
        "LayerNormalization",
    ),
    *("InstanceNormalization", "GroupNormalization", "RMSNormalization", "LRN", "LpNormalization", "Transpose", "Pad"),
    *("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool", "Resize"),
    *(
        "Upsample",
        "DepthToSpace",
        "SpaceToDepth",
        "Slice",
        "Concat",
        "Tile",
        "CumSum",
        "ReverseSequence",
        "Trilu",
        "Not",
    ),
    *("ScatterElements", "ScatterND", "Sin", "Cos", "BitwiseNot", "BitShift", "GatherElements"),
}
_BROADCAST = {"Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean", "BitwiseAnd", "BitwiseOr"}
_COMPARE = {"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Xor", "IsNaN", "IsInf"}
_OF_SHAPES = {"Shape", "Size", "NonZero", "ArgMax", "ArgMin"}
_INT64, _BOOL, _FLOAT, _UINT8 = 7, 9, 1, 2


class Types:
    """The known types of the tensors of one body. Names of an outer graph are looked up in `outer`."""

    def __init__(self, body: Body, outer: Types | None = None) -> None:
        self._outer = outer
        self._dtypes: dict[str, int] = {}
        self._ranks: dict[str, int] = {}
        self._uses = Counter(
            name for node in body.own_nodes if node.op_type not in ("Shape", "Size") for name in node.inputs
        )
        self._uses.update(port.name for port in body.outputs)
        self._producers = {name: node for node in body.own_nodes for name in node.outputs}
        self.constants: dict[str, Constant] = dict(body.constants)
        for name, port in body.ports.items():
            self._set(name, port.data_type, None if port.shape is None else len(port.shape))
        for name, constant in body.constants.items():
            self._set(name, constant.data_type, len(constant.shape))
        for node in body.own_nodes:
            self._node(node)
        for node in reversed(body.own_nodes):  # a file may declare its outputs only
            if node.op_type in _SAME and not node.domain and node.outputs:
                self._set(node.input(0), 0, self._ranks.get(node.outputs[0]))

    def dtype(self, name: str) -> int:
        """Return the TensorProto.DataType of a tensor, 0 if it is not known."""
        return self._dtypes.get(name) or (self._outer.dtype(name) if self._outer else 0)

    def rank(self, name: str) -> int | None:
        """Return the number of axes of a tensor, None if it is not known."""
        found = self._ranks.get(name)
        return found if found is not None or self._outer is None else self._outer.rank(name)

    def constant(self, name: str) -> Constant | None:
        return self.constants.get(name) or (self._outer.constant(name) if self._outer else None)

    def producer(self, name: str) -> Node | None:
        """Return the node that computes a tensor, None for an input or a constant."""
        return self._producers.get(name) or (self._outer.producer(name) if self._outer else None)

    def is_shared(self, name: str) -> bool:
        """Return whether a tensor is used more than once, not counting its shape."""
        return self._uses[name] > 1 or (self._outer is not None and self._outer.is_shared(name))

    def _set(self, name: str, dtype: int, rank: int | None) -> None:
        if dtype and name:
            self._dtypes.setdefault(name, dtype)
        if rank is not None and name:
            self._ranks.setdefault(name, rank)

    def _node(self, node: Node) -> None:
        if node.domain or not node.outputs:
            return
        if node.op_type == "Constant":
            value = node.attributes.get("value")
            if isinstance(value, Constant):
                self.constants[node.outputs[0]] = value
                self._set(node.outputs[0], value.data_type, len(value.shape))
            return
        dtype, rank = self._result(node)
        self._set(node.outputs[0], dtype, rank)

    def _result(self, node: Node) -> tuple[int, int | None]:
        first = node.input(0)
        dtype, rank = self.dtype(first), self.rank(first)
        operator = node.op_type
        if operator in _SAME:
            return dtype, rank
        if operator in _BROADCAST or operator in _COMPARE:
            ranks = [self.rank(name) for name in node.inputs]
            known = [each for each in ranks if each is not None]
            most = max(known) if known and len(known) == len(ranks) else None
            return _BOOL if operator in _COMPARE else dtype, most
        if operator in _OF_SHAPES:
            return _INT64, {"Shape": 1, "Size": 0, "NonZero": 2}.get(operator)
        return self._other(node, dtype, rank)

    def _other(self, node: Node, dtype: int, rank: int | None) -> tuple[int, int | None]:
        operator = node.op_type
        if operator == "Cast":
            return node.integer("to"), rank
        if operator == "QuantizeLinear":
            return self.dtype(node.input(2)) or _UINT8, rank
        if operator == "DequantizeLinear":
            return self.dtype(node.input(1)) or _FLOAT, rank
        if operator in ("Gemm", "Flatten"):
            return dtype, 2
        if operator == "MatMul":
            ranks = [self.rank(name) for name in node.inputs[:2]]
            known = [each for each in ranks if each is not None and each > 1]
            return dtype, max(known) if len(known) == 2 else None
        if operator == "Reshape":
            shape = self.constant(node.input(1))
            return dtype, shape.shape[0] if shape is not None and len(shape.shape) == 1 else None
        if operator in ("Unsqueeze", "Squeeze"):
            axes: object = node.integers("axes")
            count = len(node.integers("axes"))
            if not axes:
                constant = self.constant(node.input(1))
                count = constant.shape[0] if constant is not None and len(constant.shape) == 1 else 0
            if rank is None or not count:
                return dtype, None
            return dtype, rank + count if operator == "Unsqueeze" else rank - count
        if operator == "Gather":
            indices = self.rank(node.input(1))
            return dtype, rank + indices - 1 if rank is not None and indices is not None else None
        if operator == "Where":
            return self.dtype(node.input(1)), None
        return 0, None


def typed_bodies(body: Body, outer: Types | None = None) -> Iterator[tuple[Body, Types]]:
    """Yield a body and its subgraphs, each with what is known about its tensors."""
    types = Types(body, outer)
    yield body, types
    for node in body.own_nodes:
        for value in _subgraphs(node.attributes):
            yield from typed_bodies(value, types)


def _subgraphs(attributes: Mapping[str, object]) -> Iterator[Body]:
    return (value for value in attributes.values() if isinstance(value, Body))
