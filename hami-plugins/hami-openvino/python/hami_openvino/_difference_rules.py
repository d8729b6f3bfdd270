"""The table of what OpenVINO computes differently from the ONNX specification, with the condition of each rule.

Each rule was seen on OpenVINO, against ONNX Runtime and the text of the specification; the tests repeat the runs. A
difference that changes the results of ordinary numbers is refused; one that shows only at the edge is listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from hami_model_check.graph import INT8, INT64, UINT8, UINT64, Node

from hami_openvino._types import Types

NEWEST_OPSET = 28
_UINT32 = 12
_FLOATS = {1, 10, 11, 16}
_FLOAT64 = 11
_FLOAT16 = 10
_BFLOAT16 = 16
_INT32 = 6
_INTEGERS = {4, 5, _INT32, INT64, _UINT32, UINT64}
_ARITHMETIC = {"Add", "Sub", "Mul", "Div"}
_KEPT_BY_REDUCE = {"Squeeze", "Unsqueeze", "Reshape", "Flatten", "Transpose", "Expand", "Identity", "Cast"} | {
    *("Neg", "Abs", "Clip", "Relu")
}
_BOOL = 9
ELSEWHERE = "run the model with OnnxTensor"

Version = tuple[int, ...]
Condition = Callable[[Node, Types], bool]


class Difference(NamedTuple):
    """What OpenVINO computes differently in a model.

    Attributes:
        operator: the operator, or "model" for the file as a whole.
        node: the name of the first such node; "" if it has none.
        opset: the version of ONNX's operators that the model imports.
        what: what differs.
        instead: what to do about it; "" for a difference that is only listed.
        refused: whether the model is refused because of it.
        nodes: number of such nodes.
    """

    operator: str
    node: str
    opset: int
    what: str
    instead: str
    refused: bool
    nodes: int = 1

    def __str__(self) -> str:
        node = f'node "{self.node}", ' if self.node else ""
        more = f" and {self.nodes - 1} more" if self.nodes > 1 else ""
        text = f"{self.operator} ({node}opset {self.opset}){more}: {self.what}"
        return f"{text}; {self.instead}" if self.instead else text


class Rule(NamedTuple):
    """One row of the table. `since` and `until` are opsets; `versions` are those of OpenVINO: from, and below."""

    operators: tuple[str, ...]
    condition: Condition
    what: str
    instead: str  # "": the difference is only listed
    since: int = 1
    until: int = NEWEST_OPSET
    versions: tuple[Version, Version] = ((0,), (9999,))


def _always(node: Node, types: Types) -> bool:
    return True


def _has(name: str) -> Condition:
    return lambda node, types: node.integer(name) != 0


def _has_input(index: int) -> Condition:
    return lambda node, types: bool(node.input(index))


def _reduces_some_axes(node: Node, types: Types) -> bool:
    return bool(node.integers("axes"))


def _axis_is_not_last(node: Node, types: Types) -> bool:
    ranks = (types.rank(name) for name in (node.input(0), *node.outputs[:1]))  # they are equal
    axis, rank = node.integer("axis", 1), next((each for each in ranks if each is not None), None)
    return axis != -1 and (rank is None or axis % rank != rank - 1)


def _is_padded(node: Node) -> bool:
    return any(node.integers("pads"))


def _windows_skip(node: Node) -> bool:
    """Whether there are elements between windows, so that the last one may begin after the end."""
    kernel, strides = node.integers("kernel_shape"), node.integers("strides")
    dilations = node.integers("dilations") or (1,) * len(kernel)
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=False)]
    return any(stride > span for stride, span in zip(strides, spans, strict=False))


def _last_window_may_be_padding(node: Node, types: Types) -> bool:
    return node.integer("ceil_mode") != 0 and (_is_padded(node) or _windows_skip(node))


def _counts_padding_beyond(node: Node, types: Types) -> bool:
    return node.integer("ceil_mode") != 0 and node.integer("count_include_pad") != 0 and _is_padded(node)


def _indices_by_columns(node: Node, types: Types) -> bool:
    return node.integer("storage_order") != 0 and len(node.outputs) > 1 and bool(node.outputs[1])


def _pads_automatically(node: Node, types: Types) -> bool:
    if node.integers("output_shape"):
        return True
    if not node.text("auto_pad").startswith("SAME"):
        return False
    weights = types.constant(node.input(1))
    kernel = node.integers("kernel_shape") or (weights.shape[2:] if weights else ())
    strides = node.integers("strides") or (1,) * len(kernel)
    return not kernel or kernel != strides or any(each != 1 for each in node.integers("dilations"))


def _text_is(name: str, *values: str) -> Condition:
    return lambda node, types: node.text(name) in values


def _keeps_aspect_ratio(node: Node, types: Types) -> bool:
    return node.text("keep_aspect_ratio_policy", "stretch") != "stretch"


def _aligns_corners_by_scales(node: Node, types: Types) -> bool:
    aligned = node.text("coordinate_transformation_mode") == "align_corners"
    return aligned and node.text("mode") in ("linear", "cubic") and bool(node.input(2)) and not node.input(3)


def _transforms_another_axis(node: Node, types: Types) -> bool:
    rank, axis = types.rank(node.input(0)), types.constant(node.input(2))
    values = [-2] if not node.input(2) else list(axis.values or ()) if axis is not None else []
    return not values or not (values[0] == 1 or (rank is not None and values[0] % rank == 1))


def _has_window(node: Node, types: Types) -> bool:
    return node.integer("left_window_size", -1) >= 0 or node.integer("right_window_size", -1) >= 0


def _is_causal_with_mask_and_past(node: Node, types: Types) -> bool:
    return node.integer("is_causal") != 0 and bool(node.input(3)) and bool(node.input(4))


def _is_causal_with_lengths_of_bfloat16(node: Node, types: Types) -> bool:
    return node.integer("is_causal") != 0 and bool(node.input(6)) and types.dtype(node.input(0)) in (0, _BFLOAT16)


def _is_of(*dtypes: int) -> Condition:
    return lambda node, types: types.dtype(node.input(0)) in dtypes


def _is_signed(node: Node, types: Types) -> bool:
    return types.dtype(node.input(0)) in (0, 3, 5, 6, 7)


def _is_float(node: Node, types: Types) -> bool:
    return types.dtype(node.input(0)) in (0, *_FLOATS)


def _casts(sources: Iterable[int], targets: Iterable[int]) -> Condition:
    return lambda node, types: (
        types.dtype(node.input(0)) in (0, *sources)
        and (node.integer("to") or types.dtype(node.input(1)) or 1) in targets
    )


def _repeats_at_run_time(node: Node, types: Types) -> bool:
    rank = types.rank(node.input(0))
    return types.constant(node.input(1)) is None and (rank is None or rank > 3)


def _cuts_a_quotient(node: Node, types: Types) -> bool:
    producer = types.producer(node.input(0))
    keeps_fractions = node.op_type == "Cast" and node.integer("to") in _FLOATS
    return producer is not None and producer.op_type == "Div" and _is_float(producer, types) and not keeps_fractions


def _divides_a_reduced_integer(node: Node, types: Types) -> bool:
    return any(
        (constant := types.constant(other)) is not None and constant.data_type in _INTEGERS and _is_reduced(name, types)
        for name, other in ((node.input(0), node.input(1)), (node.input(1), node.input(0)))
    )


def _is_reduced(name: str, types: Types) -> bool:
    """Return whether integers come from a reduction that takes what follows it into its kernel, which uses float32.

    It does so with operators on each number, of it and constants, as long as no tensor between is used twice.
    """
    while not types.is_shared(name) and (node := types.producer(name)) is not None:
        if types.dtype(node.input(0)) not in (0, *_INTEGERS):
            return False
        if node.op_type.startswith("Reduce"):
            return True
        names = node.inputs[:1]
        if node.op_type in _ARITHMETIC:
            names = tuple(each for each in node.inputs if types.constant(each) is None)
        elif node.op_type not in _KEPT_BY_REDUCE:
            return False
        if len(names) != 1:
            return False
        (name,) = names
    return False


_EIGHT_BITS = ("Add", "Sub", "Mul", "Sum", "Pow", "BitShift")
_NAN = ("Relu", "Clip", "Max", "Min")

RULES: tuple[Rule, ...] = (
    Rule(
        ("ReduceL1",),
        _reduces_some_axes,
        "reduces over all axes instead of `axes`, the batch too",
        "convert the model to opset 18 or newer, for example by onnx.version_converter",
        13,
        17,
    ),
    Rule(
        ("ReduceLogSum", "ReduceLogSumExp"),
        _reduces_some_axes,
        "reduces over all axes instead of `axes`, the batch too",
        "convert the model to opset 18 or newer, for example by onnx.version_converter",
        13,
        17,
        ((2025, 4), (9999,)),
    ),
    Rule(
        ("Softmax",),
        _axis_is_not_last,
        "normalises along `axis` only, instead of along all axes from `axis` on",
        "convert the model to opset 13 or newer, for example by onnx.version_converter",
        11,
        12,
    ),
    Rule(
        ("MaxPool",),
        _last_window_may_be_padding,
        "keeps a last window that has only padding, so that the output may have another shape and -3.4e38 in it",
        "set ceil_mode = 0, or pad before the node",
    ),
    Rule(
        ("AveragePool",),
        _counts_padding_beyond,
        "divides by another number of elements at the end of an axis",
        "set ceil_mode = 0 or count_include_pad = 0, or pad before the node",
    ),
    Rule(
        ("AveragePool",),
        _last_window_may_be_padding,
        "keeps a last window that has only padding, so that the output may have another shape",
        "set ceil_mode = 0, pad before the node, or install openvino 2026 or newer",
        versions=((0,), (2026,)),
    ),
    Rule(
        ("MaxPool",),
        _indices_by_columns,
        "ignores storage_order = 1: the indices count rows first",
        "set storage_order = 0",
    ),
    Rule(
        ("ConvTranspose",),
        _pads_automatically,
        "places or pads the output differently for auto_pad = SAME_UPPER and SAME_LOWER, and for output_shape",
        "give `pads` and `output_padding` explicitly",
    ),
    Rule(("SpaceToDepth",), _text_is("mode", "CRD"), "ignores mode = CRD", "use mode = DCR and a Transpose"),
    Rule(("Resize",), _has("antialias"), "ignores antialias = 1", f"set antialias = 0, or {ELSEWHERE}"),
    Rule(
        ("Resize",),
        _keeps_aspect_ratio,
        "ignores keep_aspect_ratio_policy: the output has another shape",
        "compute `sizes` before the node",
    ),
    Rule(
        ("Resize",), _has("exclude_outside"), "ignores exclude_outside = 1", f"set exclude_outside = 0, or {ELSEWHERE}"
    ),
    Rule(("LSTM",), _has_input(7), "ignores the peephole weights (input P)", ELSEWHERE),
    Rule(("LSTM",), _has("input_forget"), "ignores input_forget = 1", ELSEWHERE),
    Rule(
        ("LSTM", "GRU", "RNN"),
        _has("layout"),
        "ignores layout = 1: the batch is taken as time",
        "use layout = 0 and Transpose nodes",
    ),
    Rule(
        ("RoiAlign",),
        _text_is("mode", "max"),
        "takes the maximum of interpolated values instead of the maximum of weighted values",
        f"use mode = avg, or {ELSEWHERE}",
    ),
    Rule(
        ("DFT",),
        _has("onesided"),
        "returns an output of another shape for onesided = 1",
        f"use onesided = 0 and a Slice, or {ELSEWHERE}",
    ),
    Rule(
        ("DFT",),
        _transforms_another_axis,
        "transforms axis 1, not the axis that is given",
        "transpose, so that the axis is axis 1 and given as a constant",
        20,
    ),
    Rule(("Attention",), _has_window, "ignores left_window_size and right_window_size", "give the window as attn_mask"),
    Rule(
        ("Attention",),
        _is_causal_with_mask_and_past,
        "masks other positions if is_causal = 1, attn_mask and past_key come together",
        "put the causal mask into attn_mask and set is_causal = 0",
    ),
    Rule(
        ("Attention",),
        _is_causal_with_lengths_of_bfloat16,
        "gives a query without keys the mean of the values, not zeros, in bfloat16 with is_causal and nonpad_kv_seqlen",
        "compute in float32, or put the causal mask into attn_mask and set is_causal = 0",
    ),
    Rule(
        _EIGHT_BITS,
        _is_of(INT8, UINT8),
        "ends at the largest value of 8 bits, where ONNX continues from the smallest",
        "compute in int32 and cast the result",
    ),
    Rule(
        ("Div",),
        _is_of(INT8, UINT8),
        "rounds to the nearest integer of 8 bits if a length is not fixed, where ONNX drops the fraction",
        "compute in int32 and cast the result",
    ),
    Rule(
        ("Div",),
        _divides_a_reduced_integer,
        "rounds integer quotients to the nearest behind ReduceSum and the like, and exchanges a constant dividend",
        "make the constant an input of the model, or divide in float32 and cast the result",
    ),
    Rule(
        ("BitShift",),
        _is_signed,
        "shifts signed integers in another way: it fills with zeros and ends at the largest value",
        "shift unsigned integers, or multiply and divide by powers of two",
        28,
    ),
    Rule(
        ("Tile",),
        _repeats_at_run_time,
        "returns zeros if `repeats` is known only at run time and repeats three axes or more behind the first",
        "make `repeats` a constant, or use Expand",
    ),
    # What shows only at the edge.
    Rule(_NAN, _is_float, "NaN becomes a number", ""),
    Rule(("Softmax",), _is_float, "a row with NaN has numbers too; a row of -inf only becomes NaN", ""),
    Rule(("Exp",), _is_float, "infinite above 88.38, where exp(88.7) is still a float32; NaN becomes infinite", ""),
    Rule(("ReduceMax", "ReduceMin"), _is_float, "NaN becomes a number, and no elements give 3.4e38 for infinity", ""),
    Rule(("Cast", "CastLike"), _casts(_FLOATS, (_FLOAT64,)), "infinities become 3.4028235e38", ""),
    Rule(("Cast", "CastLike"), _casts((_FLOAT64,), _FLOATS), "infinities become 3.4028235e38", ""),
    Rule(("Cast", "CastLike"), _casts(_FLOATS, (_BOOL,)), "NaN becomes false", ""),
    Rule(
        ("Cast", "CastLike"),
        _casts(_FLOATS, (INT8, UINT8)),
        "numbers outside of 8 bits become the smallest or the largest value",
        "",
    ),
    Rule(
        ("Cast", "CastLike"),
        _casts(_FLOATS, (_FLOAT16,)),
        "float16 that becomes float32 again keeps the digits and the range of float32",
        "",
    ),
    Rule(
        ("Floor", "Ceil", "Cast"),
        _cuts_a_quotient,
        "x / y is x * (1 / y), and may be just beside a whole number: the floor of 41 / 41 is 0",
        "",
    ),
    Rule(("Div",), _is_of(_INT32, _UINT32, INT64, UINT64), "integers from 16777217 on are divided as float32", ""),
    Rule(
        ("QuantizeLinear", "DynamicQuantizeLinear"),
        _always,
        "a value halfway between two steps is rounded after the zero point was added: one step off if that is odd",
        "",
    ),
    Rule(("NonMaxSuppression",), _always, "a box whose overlap is exactly the threshold is dropped", ""),
    Rule(("TopK",), _always, "equal values come in another order, which depends on k", ""),
    Rule(
        ("LSTM", "GRU", "RNN"),
        _has_input(4),
        "Y is not 0 after the end of a sequence that is shorter than sequence_lens of others",
        "",
    ),
    Rule(
        ("Resize",),
        _aligns_corners_by_scales,
        "scales that do not divide the sizes give other coordinates (as in ONNX Runtime)",
        "",
    ),
    Rule(
        ("Max", "Min", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "TopK", "ArgMax", "ArgMin"),
        _is_of(_UINT32, UINT64),
        "values from 2147483648 on count as negative",
        "",
    ),
    Rule(("Neg", "Abs"), _is_of(INT8), "-128 becomes 127", ""),
    Rule(
        ("Add", "Sub", "Mul", "Sum", "Pow", "ReduceSum", "ReduceProd", "CumSum", "MatMul"),
        _is_of(INT64, UINT64),
        "64-bit integers are computed in 32 bits: results beyond them are other numbers",
        "",
    ),
    Rule(
        ("Add", "Sub", "Mul", "Div", "Sum", "Pow", "MatMul", "Gemm", "Conv", "ReduceSum", "ReduceMean"),
        _is_of(_FLOAT64),
        "float64 is computed in float32",
        "",
    ),
)
