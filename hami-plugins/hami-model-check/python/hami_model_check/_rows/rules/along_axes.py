"""Operators that work along some axes: sums, softmax, norms, sorting."""

from __future__ import annotations

from hami_model_check._rows import size as sizes
from hami_model_check._rows.call import Call, whole
from hami_model_check._rows.size import Size
from hami_model_check._rows.value import (
    Batch,
    Element,
    Mixes,
    Unknown,
    Value,
    normal_axis,
    rows_of,
    shape_of,
    uniform,
)


def _not_along(value: Value, axes: list[int], what: str) -> None:
    if value.batch is not None and value.batch.axis in axes:
        raise Mixes(f"{what} axis {value.batch.axis}, which is the batch axis")


def reduce(call: Call) -> list[Value]:
    """Combine all elements along the axes into one."""
    data = call.input(0)
    if data.batch is None and data.rank is None:
        return [uniform()]
    shape = shape_of(data)
    axes = call.axes(1, len(shape))
    if not axes:
        if call.integer("noop_with_empty_axes", 0):
            return [data]
        axes = list(range(len(shape)))
    _not_along(data, axes, f"combines the elements of all rows ({call.operator}) along")
    return [_without(call, data, axes, keep=bool(call.integer("keepdims", 1)))]


def _without(call: Call, data: Value, axes: list[int], *, keep: bool) -> Value:
    shape = shape_of(data)
    if keep:
        left: list[Size] = [1 if axis in axes else length for axis, length in enumerate(shape)]
    else:
        left = [length for axis, length in enumerate(shape) if axis not in axes]
    batch = data.batch
    if batch is not None and not keep:
        batch = batch._replace(axis=batch.axis - sum(axis < batch.axis for axis in axes))
    elements: list[Element] | None = None
    if data.elements is not None and len(shape) == 1:
        total = _total(call.operator, data.elements)
        elements = None if total is None else [total]
    if data.of_size and elements is None:
        raise Unknown("computes with the number of rows")
    return Value(tuple(left), batch, elements)


def _total(operator: str, elements: tuple[Element, ...]) -> Element | None:
    lengths = [element for element in elements if not isinstance(element, float)]
    if len(lengths) < len(elements):
        return None
    if operator == "ReduceProd":
        return sizes.product_of(lengths)
    if operator == "ReduceSum":
        total: Size = 0
        for length in lengths:
            total = sizes.add(total, length)
        return total
    return None


def arg_reduce(call: Call) -> list[Value]:
    """Find the place of the largest or smallest element along an axis."""
    data = call.input(0)
    axis = call.axis(0, len(shape_of(data)))
    _not_along(data, [axis], "compares all rows along")
    return [_without(call, data, [axis], keep=bool(call.integer("keepdims", 1)))]


def cumulate(call: Call) -> list[Value]:
    """Add up along an axis."""
    data = call.input(0)
    shape = shape_of(data)
    axes = call.axes(1, len(shape))
    if axes is None:
        raise Unknown("lacks its axis")
    _not_along(data, axes, "adds up all rows along")
    return [Value(shape, data.batch)]


def softmax(call: Call) -> list[Value]:
    """Normalise along one axis; up to opset 12 along that axis and all axes after it."""
    data = call.input(0)
    shape = shape_of(data)
    if not shape:
        return [data]
    if call.opset >= 13:
        axes = [call.axis(-1, len(shape))]
    else:
        axes = list(range(call.axis(1, len(shape)) if len(shape) > 1 or "axis" in call.attributes else 0, len(shape)))
    _not_along(data, axes, "normalises along")
    return [Value(shape, data.batch)]


def normalise_last_axes(call: Call) -> list[Value]:
    """Normalise along an axis and all axes after it, then scale by weights."""
    data = call.input(0)
    shape = shape_of(data)
    call.no_rows(1, 2)
    axis = call.axis(-1, len(shape))
    _not_along(data, list(range(axis, len(shape))), "normalises along")
    for weight in (call.optional(1), call.optional(2)):
        if weight is not None and data.batch is not None:
            _check_weight(weight, data, len(shape))
    means = Value(tuple(length if at < axis else 1 for at, length in enumerate(shape)), data.batch)
    return [Value(shape, data.batch), means, means][: max(1, len(call.outputs))]


def _check_weight(weight: Value, data: Value, rank: int) -> None:
    """Raise Unknown unless a weight is the same for each row."""
    assert data.batch is not None
    own = shape_of(weight)
    at = data.batch.axis - (rank - len(own))
    if at >= 0 and own[at] != 1:
        raise Unknown("has weights with an axis at the place of the batch axis")


def normalise_one_axis(call: Call) -> list[Value]:
    """Divide by the norm along one axis."""
    data = call.input(0)
    shape = shape_of(data)
    _not_along(data, [call.axis(-1, len(shape))], "normalises along")
    return [Value(shape, data.batch)]


def normalise_axes(call: Call) -> list[Value]:
    """Subtract the mean and divide by the deviation along axes."""
    data = call.input(0)
    shape = shape_of(data)
    axes = [normal_axis(axis, len(shape)) for axis in call.integers("axes") or [0, 2, 3]]
    _not_along(data, axes, "normalises along")
    return [Value(shape, data.batch)]


def top_k(call: Call) -> list[Value]:
    """Find the largest elements along an axis."""
    data = call.input(0)
    shape = shape_of(data)
    call.no_rows(1)
    axis = call.axis(-1, len(shape))
    _not_along(data, [axis], "sorts all rows along")
    count: Size = call.integer("k", 0) if "k" in call.attributes else sizes.fresh()
    if call.optional(1) is not None:
        known = call.input(1).integers()
        if known:
            count = known[0]
    found = rows_of((*shape[:axis], count, *shape[axis + 1 :]), data.batch)
    return [found, found]


def one_hot(call: Call) -> list[Value]:
    """Add an axis of ones and zeros."""
    data = call.input(0)
    shape = shape_of(data)
    call.no_rows(1, 2)
    axis = call.axis(-1, len(shape) + 1)
    return [insert_axis(data, axis, sizes.fresh())]


def insert_axis(data: Value, axis: int, length: Size) -> Value:
    shape = shape_of(data)
    batch = data.batch
    if batch is not None and batch.axis >= axis:
        batch = batch._replace(axis=batch.axis + 1)
    return Value((*shape[:axis], length, *shape[axis:]), batch)


def keeps_last_two_apart(call: Call) -> list[Value]:
    """Treat the last two axes as matrices, and keep the axes before them apart."""
    data = call.input(0)
    shape = shape_of(data)
    call.no_rows(1)
    _not_along(data, [len(shape) - 2, len(shape) - 1], "works on matrices along")
    return [Value(shape, data.batch)]


def determinant(call: Call) -> list[Value]:
    """Compute the determinant of the matrices in the last two axes."""
    (matrices,) = keeps_last_two_apart(call)
    return [Value(shape_of(matrices)[:-2], matrices.batch)]


def fourier(call: Call) -> list[Value]:
    """Transform along one axis."""
    data = call.input(0)
    shape = shape_of(data)
    call.no_rows(1, 2)
    if call.opset >= 20:
        axes = call.axes(2, len(shape)) if call.optional(2) is not None else [len(shape) - 2]
    else:
        axes = [call.axis(1, len(shape))]
    assert axes is not None
    _not_along(data, [*axes, len(shape) - 1], "transforms along")
    return [
        Value(
            tuple(sizes.fresh() if at in axes or at == len(shape) - 1 else n for at, n in enumerate(shape)), data.batch
        )
    ]


def reverse_sequence(call: Call) -> list[Value]:
    """Reverse the begin of each row."""
    data, lengths = call.input(0), call.input(1)
    shape, batch = whole(data)
    along = normal_axis(call.integer("batch_axis", 1), len(shape))
    time = normal_axis(call.integer("time_axis", 0), len(shape))
    if batch is None and lengths.batch is None:
        return [data]
    _not_along(data, [time], "reverses the order along")
    if batch is not None and batch.axis == along:
        if lengths.batch != Batch(0):
            raise Unknown("takes the lengths of the rows from a constant")
    elif lengths.batch is not None:
        raise Unknown("takes lengths from the rows for another axis")
    return [Value(shape, batch)]


def loss(call: Call) -> list[Value]:
    """Compute a loss for each row, or one for all."""
    if call.same_for_all():
        return [uniform() for _ in call.outputs]
    scores, target = call.input(0), call.input(1)
    call.no_rows(2)
    if scores.batch != Batch(0) or target.batch != Batch(0):
        raise Unknown("needs the batch axis first in its two inputs")
    if call.text("reduction", "mean") != "none":
        raise Mixes("combines the losses of all rows")
    return [Value(shape_of(target), Batch(0)), Value(shape_of(scores), Batch(0))][: len(call.outputs)]
