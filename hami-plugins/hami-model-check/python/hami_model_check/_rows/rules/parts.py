"""Operators that take parts of tensors or put parts together."""

from __future__ import annotations

from collections.abc import Sequence

from hami_model_check._rows import size as sizes
from hami_model_check._rows.call import Call
from hami_model_check._rows.size import Size, Sum
from hami_model_check._rows.value import (
    Element,
    Mixes,
    Unknown,
    Value,
    broadcast_sizes,
    normal_axis,
    rows_of,
    shape_of,
    uniform,
)

_END = 1_000_000_000  # exporters write this or more for "to the end", and no axis is that long


def concat(call: Call) -> list[Value]:
    """Put tensors one after the other along an axis."""
    values = call.given()
    if call.same_for_all() and any(value.shape is None for value in values):
        return [uniform()]
    shapes = [shape_of(value) for value in values]
    rank = len(shapes[0])
    if any(len(own) != rank for own in shapes):
        raise Unknown("has inputs with different numbers of axes")
    axis = call.axis(1, rank)
    return [_concatenated(values, axis)]


def _concatenated(values: Sequence[Value], axis: int) -> Value:
    shapes = [shape_of(value) for value in values]
    batches = [value.batch for value in values if value.batch is not None]
    lengths: list[Size] = list(shapes[0])
    for own in shapes[1:]:
        lengths = [broadcast_sizes(a, b) for a, b in zip(lengths, own, strict=True)]
    lengths[axis] = 0
    for own in shapes:
        lengths[axis] = sizes.add(lengths[axis], own[axis])
    if not batches:
        elements: list[Element] | None = None
        if len(lengths) == 1 and any(value.elements is not None for value in values):
            parts = [value.contents() for value in values]
            if all(part is not None for part in parts):
                elements = [element for part in parts if part is not None for element in part]
        if elements is None and any(value.of_size for value in values):
            raise Unknown("computes with the number of rows")
        return Value(tuple(lengths), elements=elements)
    if any(batch.axis != batches[0].axis for batch in batches):
        raise Mixes("puts tensors together whose batch axes differ")
    if batches[0].axis == axis:
        if len(values) == 1:
            return values[0]
        raise Mixes(f"puts tensors together along axis {axis}, which is the batch axis")
    if len(batches) < len(values):
        raise Unknown("puts rows and a tensor without a batch axis together")
    if len(set(batches)) > 1:
        raise Unknown("puts rows and blocks of rows together")
    lengths[batches[0].axis] = shapes[0][batches[0].axis]
    return rows_of(tuple(lengths), batches[0])


def split(call: Call) -> list[Value]:
    """Cut a tensor along an axis."""
    data = call.input(0)
    own = shape_of(data)
    axis = call.axis(0, len(own))
    call.no_rows(1)
    if data.batch is not None and data.batch.axis == axis and len(call.outputs) > 1:
        raise Mixes(f"cuts axis {axis}, which is the batch axis, at fixed places")
    parts: Sequence[Element] | None = call.integers("split") if call.optional(1) is None else call.input(1).elements
    count = len(call.outputs)
    if parts is None and isinstance(own[axis], int) and call.optional(1) is None:
        length = int(own[axis])  # type: ignore[arg-type]
        each = -(-length // max(call.integer("num_outputs", count), 1))
        parts = [max(0, min(each, length - each * at)) for at in range(count)]
    if data.of_size:
        return _sizes_split(data, parts, count)
    results = []
    for at in range(count):
        part = parts[at] if parts is not None and at < len(parts) else None
        known = part if isinstance(part, (int, Sum)) else sizes.fresh()
        if count == 1:
            known = own[axis]
        results.append(rows_of((*own[:axis], known, *own[axis + 1 :]), data.batch))
    return results


def _sizes_split(data: Value, parts: Sequence[Element] | None, count: int) -> list[Value]:
    if parts is None or len(parts) != count or data.rank != 1 or not all(isinstance(part, int) for part in parts):
        raise Unknown("computes with the number of rows")
    assert data.elements is not None
    results, begin = [], 0
    for part in parts:
        end = begin + int(part)  # type: ignore[arg-type]
        results.append(Value((end - begin,), elements=data.elements[begin:end]))
        begin = end
    return results


def slice_(call: Call) -> list[Value]:
    """Take a range of each axis."""
    data = call.input(0)
    own = shape_of(data)
    if call.opset < 10:
        begins, ends = (_as_elements(call.integers(name)) for name in ("starts", "ends"))
        axes, steps = call.integers("axes"), None
        if begins is None:
            raise Unknown("lacks its attribute starts")
    else:
        for index in range(1, len(call.inputs)):
            value = call.optional(index)
            if value is not None and value.batch is not None:
                raise Mixes("takes its range from the rows")
        begins, ends = call.input(1).contents(), call.input(2).contents()
        axes = call.axes(3, len(own)) if call.optional(3) is not None else None
        steps = call.input(4).contents() if call.optional(4) is not None else None
    if begins is None or ends is None:
        if data.batch is None and not data.of_size:
            return [uniform(len(own))]
        raise Unknown("takes its range from a tensor of unknown length")
    axes = [normal_axis(axis, len(own)) for axis in axes] if axes is not None else list(range(len(begins)))
    steps = steps if steps is not None else (1,) * len(begins)
    if not len(begins) == len(ends) == len(axes) == len(steps):
        raise Unknown("has ranges and axes of different lengths")
    lengths: list[Size] = list(own)
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        if step == 1 and begin == 0 and _reaches_end(end, own[axis]):
            continue
        if data.batch is not None and data.batch.axis == axis:
            if all(isinstance(number, int) for number in (begin, end, step)):
                raise Mixes(f"takes rows by their position along axis {axis}, which is the batch axis")
            raise Unknown(f"may take a part of axis {axis}, which is the batch axis")
        lengths[axis] = _sliced_length(own[axis], begin, end, step)
    if data.elements is not None:
        limits = [_limits(begin, end, step) for begin, end, step in zip(begins, ends, steps, strict=True)]
        picked = dict(zip(axes, limits, strict=True))
        chosen = [range(n)[picked.get(at) or slice(None)] if isinstance(n, int) else None for at, n in enumerate(own)]
        if None not in limits and None not in chosen:
            return [data.selected([part for part in chosen if part is not None])]
    if data.of_size:
        raise Unknown("computes with the number of rows")
    return [rows_of(tuple(lengths), data.batch)]


def _reaches_end(end: Element, length: Size) -> bool:
    return end == length or (isinstance(end, int) and end >= (length if isinstance(length, int) else _END))


def _as_elements(numbers: list[int] | None) -> tuple[Element, ...] | None:
    return None if numbers is None else tuple(numbers)


def _sliced_length(length: Size, begin: Element, end: Element, step: Element) -> Size:
    limits = _limits(begin, end, step)
    if isinstance(length, int) and limits is not None:
        return len(range(length)[limits])
    if any(isinstance(number, Sum) and sizes.depends_on_batch(number) for number in (begin, end, step)):
        raise Unknown("takes a range that depends on the number of rows")
    return sizes.fresh()


def _limits(begin: Element, end: Element, step: Element) -> slice | None:
    if not isinstance(begin, int) or not isinstance(end, int) or not isinstance(step, int) or not step:
        return None
    return slice(begin, None if step < 0 and end < -_END else end, step)


def gather(call: Call) -> list[Value]:
    """Take elements by index along an axis."""
    data, indices = call.input(0), call.input(1)
    if data.batch is None and indices.batch is None and (data.shape is None or indices.shape is None):
        return [uniform()]
    if indices.of_size:
        raise Unknown("takes elements by numbers that depend on the number of rows")
    own, places = shape_of(data), shape_of(indices)
    axis = call.axis(0, len(own))
    shape = (*own[:axis], *places, *own[axis + 1 :])
    if data.batch is not None:
        if indices.batch is not None:
            if data.batch.axis == axis:
                raise Mixes("takes rows by numbers that are in the rows")
            raise Mixes("combines each row with the indices of each other row")
        if data.batch.axis == axis:
            raise Mixes(f"takes rows by their position along axis {axis}, which is the batch axis")
        shift = len(places) - 1 if data.batch.axis > axis else 0
        return [rows_of(shape, data.batch._replace(axis=data.batch.axis + shift))]
    if indices.batch is not None:
        if data.of_size:
            raise Unknown("may use the number of rows as a number")
        return [rows_of(shape, indices.batch._replace(axis=indices.batch.axis + axis))]
    if data.elements is not None and len(own) == 1:
        numbers = indices.integers()
        if numbers is not None and all(-len(data.elements) <= number < len(data.elements) for number in numbers):
            return [Value(places, elements=[data.elements[number] for number in numbers])]
    if data.of_size:
        raise Unknown("computes with the number of rows")
    return [rows_of(shape, None)]


def gather_elements(call: Call) -> list[Value]:
    """Take elements by index along an axis, each index at its own place."""
    data, indices = call.input(0), call.input(1)
    if call.same_for_all():
        return [Value(indices.shape)]
    axis = call.axis(0, len(shape_of(data)))
    shape = shape_of(indices)
    if any(value.batch is not None and value.batch.axis == axis for value in (data, indices)):
        raise Mixes(f"takes elements by index along axis {axis}, which is the batch axis")
    if data.batch != indices.batch:
        raise Unknown("takes elements of rows by indices that are not in the same rows")
    return [rows_of(shape, indices.batch)]


def gather_nd(call: Call) -> list[Value]:
    """Take parts by indices along several axes."""
    data, indices = call.input(0), call.input(1)
    if call.same_for_all():
        return [uniform()]
    own, places = shape_of(data), shape_of(indices)
    batch_axes = call.integer("batch_dims", 0)
    depth = places[-1] if places else None
    if not isinstance(depth, int):
        raise Unknown("has indices of unknown length")
    shape = (*places[:-1], *own[batch_axes + depth :])
    if indices.batch is not None and indices.batch.axis == len(places) - 1:
        raise Mixes("takes its indices along the batch axis")
    if data.batch is None:
        assert indices.batch is not None
        if indices.batch.axis < batch_axes:
            raise Unknown("takes elements of a tensor without a batch axis, row by row")
        return [rows_of(shape, indices.batch)]
    if indices.batch is None:
        if data.batch.axis < batch_axes + depth:
            raise Unknown(f"takes rows by their position along axis {data.batch.axis}, which is the batch axis")
        moved = data.batch._replace(axis=data.batch.axis - batch_axes - depth + len(places) - 1)
        return [rows_of(shape, moved)]
    if data.batch != indices.batch or data.batch.axis >= batch_axes:
        raise Unknown("takes elements of rows by numbers that are in the rows")
    return [rows_of(shape, data.batch)]


def scatter_elements(call: Call) -> list[Value]:
    """Put elements at indices along an axis."""
    data, indices, updates = call.input(0), call.input(1), call.input(2)
    if call.same_for_all():
        return [Value(data.shape)]
    shape_of(data)
    axis = call.axis(0, len(shape_of(data)))
    if any(value.batch is not None and value.batch.axis == axis for value in (data, indices, updates)):
        raise Mixes(f"puts elements at indices along axis {axis}, which is the batch axis")
    if not data.batch == indices.batch == updates.batch:
        raise Unknown("puts elements into rows at indices that are not in the same rows")
    return [Value(data.shape, data.batch)]


def scatter_nd(call: Call) -> list[Value]:
    """Put parts at indices along several axes."""
    data, indices, updates = call.input(0), call.input(1), call.input(2)
    if call.same_for_all():
        return [Value(data.shape)]
    places = shape_of(indices)
    depth = places[-1] if places else None
    shape_of(data)
    if not isinstance(depth, int) or indices.batch is not None or data.batch is None or updates.batch is None:
        raise Unknown("puts parts into rows at indices that cannot be followed")
    if data.batch.axis < depth:
        raise Unknown(f"puts rows at their position along axis {data.batch.axis}, which is the batch axis")
    if updates.batch != data.batch._replace(axis=data.batch.axis - depth + len(places) - 1):
        raise Unknown("puts rows at the place of other rows")
    return [Value(data.shape, data.batch)]


def compress(call: Call) -> list[Value]:
    """Take the elements along an axis for which a condition holds."""
    data, condition = call.input(0), call.input(1)
    if call.same_for_all():
        return [uniform(data.rank if "axis" in call.attributes else 1)]
    if condition.batch is not None:
        raise Mixes("takes as many elements as there are in all rows")
    own = shape_of(data)
    if "axis" not in call.attributes:
        raise Unknown("takes elements of all rows by their position")
    axis = call.axis(0, len(own))
    if data.batch is None or data.batch.axis == axis:
        raise Unknown(f"takes rows by their position along axis {axis}, which is the batch axis")
    return [rows_of((*own[:axis], sizes.fresh(), *own[axis + 1 :]), data.batch)]


def array_features(call: Call) -> list[Value]:
    """Take elements by index along the last axis."""
    data = call.input(0)
    own = shape_of(data)
    call.no_rows(1)
    if data.batch is None:
        return [uniform()]
    if data.batch.axis == len(own) - 1 or len(own) < 2:
        raise Unknown("takes rows by their position")
    return [rows_of((*own[:-1], sizes.fresh()), data.batch)]


def collects(call: Call) -> list[Value]:
    """Make one list from the elements of all rows."""
    if call.same_for_all():
        return [uniform() for _ in call.outputs]
    raise Mixes("makes one list from all rows, whose length depends on all of them")


def lists(call: Call) -> list[Value]:
    """Work on lists of tensors, maps or optional values."""
    if call.same_for_all() and not any(value.of_size for value in call.given()):
        tensor = ("SequenceAt", "SequenceLength", "ConcatFromSequence", "OptionalGetElement", "OptionalHasElement")
        return [Value(None, is_list=call.operator not in tensor) for _ in call.outputs]
    raise Unknown("works on lists or optional values, whose rows are not followed")
