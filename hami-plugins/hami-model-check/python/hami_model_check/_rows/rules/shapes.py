"""Operators that change the shape of a tensor or make one of a given shape."""

from __future__ import annotations

from collections.abc import Sequence

from hami_model_check._rows import size as sizes
from hami_model_check._rows.call import Call, whole
from hami_model_check._rows.rules.along_axes import insert_axis
from hami_model_check._rows.size import Size, Sum
from hami_model_check._rows.value import (
    Batch,
    Element,
    Mixes,
    Shape,
    Unknown,
    Value,
    broadcast_sizes,
    normal_axis,
    not_one_row,
    rows_of,
    shape_of,
    uniform,
)


def shape(call: Call) -> list[Value]:
    """Return the shape; its contents are followed as numbers."""
    full = shape_of(call.input(0))
    part = full[slice(call.integer("start", 0), call.integer("end", len(full)))]
    return [Value((len(part),), elements=part)]


def size(call: Call) -> list[Value]:
    """Return the number of elements."""
    return [Value((), elements=[sizes.product_of(shape_of(call.input(0)))])]


def _lengths(value: Value, what: str = "shape") -> list[Size]:
    """Return the contents of a tensor that is a shape."""
    if value.batch is not None:
        raise Mixes(f"takes its {what} from the rows")
    found = value.contents()
    if found is None or value.rank not in (0, 1):
        raise Unknown(f"takes its {what} from a tensor of unknown length")
    if any(isinstance(length, float) for length in found):
        raise Unknown(f"takes its {what} from numbers that are not integers")
    return [length for length in found if not isinstance(length, float)]


def reshape(call: Call) -> list[Value]:
    """Arrange the elements in another shape; rows stay apart if each remains one block."""
    data = call.input(0)
    if call.opset >= 5:
        if call.input(1).batch is None and call.input(1).contents() is None:
            if data.batch is None:
                return [uniform()]
            raise Unknown("takes its shape from a tensor of unknown length")
        target = _lengths(call.input(1))
    else:
        target = list(call.integers("shape") or [])
    return [reshaped(data, target, zero_copies=not call.integer("allowzero", 0))]


def reshaped(data: Value, target: Sequence[Size], *, zero_copies: bool) -> Value:
    lengths = list(target)
    own = data.shape
    if zero_copies:
        for axis, length in enumerate(lengths):
            if length == 0:
                if own is None or axis >= len(own):
                    raise Unknown(f"copies the length of axis {axis}, which is not known")
                lengths[axis] = own[axis]
    if lengths.count(-1) > 1:
        raise Unknown("has -1 twice in its shape")
    maybe_minus_one = [at for at, n in enumerate(lengths) if isinstance(n, Sum) and not sizes.is_positive(n)]
    if -1 in lengths:
        at = lengths.index(-1)
        rest = sizes.product_of(length for length in lengths if length != -1)
        inferred = sizes.divide(sizes.product_of(own), rest) if own is not None else None
        if inferred is None and data.batch is None and not any(map(sizes.depends_on_batch, lengths)):
            inferred = sizes.fresh()
        if inferred is not None:
            lengths[at] = inferred
    if data.batch is None:
        if data.of_size:
            return _sizes_reshaped(data, lengths)
        return Value(rows_of(tuple(lengths), None).shape, elements=data.elements)
    return rows_of(*_find_rows(data, lengths, maybe_minus_one))


def _sizes_reshaped(data: Value, lengths: Sequence[Size]) -> Value:
    assert data.elements is not None
    if -1 in lengths or not all(isinstance(length, int) for length in lengths):
        raise Unknown("computes with the number of rows")
    return Value(tuple(lengths), elements=data.elements)


def _find_rows(data: Value, lengths: list[Size], maybe_minus_one: list[int]) -> tuple[Shape, Batch]:
    """Find the axis of the new shape that holds the rows: what precedes a row in memory stays equal."""
    batch = data.batch
    assert batch is not None
    if data.shape is None:
        if batch.axis != 0:
            raise Unknown("has an input whose number of axes is not known")
        before: Size = 1
        count: Size | None = None
    else:
        before = sizes.product_of((*data.shape[: batch.axis], batch.outer))
        count = sizes.divide(data.shape[batch.axis], sizes.multiply(batch.outer, batch.inner))
    if count is None:
        raise Unknown("has an input whose number of rows is not known")
    passed: Size = 1
    for axis, length in enumerate(lengths):
        if length == -1:
            break
        outer = sizes.divide(before, passed)
        inner = None if outer is None else sizes.divide(length, sizes.multiply(outer, count))
        if outer is not None and inner is not None and inner != 0:
            unknown = [at for at in maybe_minus_one if at <= axis]
            if unknown:
                raise Unknown(f"may have -1 for axis {unknown[0]} of its shape")
            return tuple(sizes.fresh() if n == -1 else n for n in lengths), Batch(axis, outer, inner)
        passed = sizes.multiply(passed, length)
    if all(isinstance(length, int) for length in lengths) and -1 not in lengths:
        raise Unknown(f"has the shape {lengths}, which fits only one number of rows")
    raise Unknown("cuts the batch axis into a shape that does not keep rows in one piece")


def flatten(call: Call) -> list[Value]:
    """Arrange the elements as a matrix."""
    data = call.input(0)
    own = shape_of(data)
    axis = call.integer("axis", 1)
    if not -len(own) <= axis <= len(own):
        raise Unknown(f"has the axis {axis} for a tensor of {len(own)} axes")
    axis += len(own) if axis < 0 else 0
    return [reshaped(data, [sizes.product_of(own[:axis]), sizes.product_of(own[axis:])], zero_copies=False)]


def transpose(call: Call) -> list[Value]:
    """Reorder the axes."""
    data = call.input(0)
    own = shape_of(data)
    order = call.integers("perm") or list(reversed(range(len(own))))
    if sorted(order) != list(range(len(own))):
        raise Unknown(f"has the order {order} for a tensor of {len(own)} axes")
    if data.elements is not None:
        return [data.selected([range(length) if isinstance(length, int) else () for length in own], order)]
    batch = data.batch and data.batch._replace(axis=order.index(data.batch.axis))
    return [Value(tuple(own[axis] for axis in order), batch)]


def squeeze(call: Call) -> list[Value]:
    """Remove axes of length 1."""
    data = call.input(0)
    own = shape_of(data)
    axes = call.axes(1, len(own))
    if axes is None:
        if data.batch is not None:
            raise Unknown("removes every axis of length 1, also the batch axis of a single row")
        if not all(isinstance(length, int) for length in own):
            return [uniform()]
        axes = [axis for axis, length in enumerate(own) if length == 1]
    if data.batch is not None and data.batch.axis in axes:
        raise Unknown(f"removes axis {data.batch.axis}, which is the batch axis")
    batch = data.batch and data.batch._replace(axis=data.batch.axis - sum(axis < data.batch.axis for axis in axes))
    return [Value(tuple(n for axis, n in enumerate(own) if axis not in axes), batch, data.elements)]


def unsqueeze(call: Call) -> list[Value]:
    """Insert axes of length 1."""
    data = call.input(0)
    own = shape_of(data)
    raw = call.integers("axes") if call.optional(1) is None else call.input(1).integers()
    if raw is None:
        raise Unknown("takes its axes from a tensor that is not a constant")
    rank = len(own) + len(raw)
    elements = data.elements
    for axis in sorted(normal_axis(axis, rank) for axis in raw):
        data = insert_axis(data, axis, 1)
    return [Value(data.shape, data.batch, elements)]


def expand(call: Call) -> list[Value]:
    """Repeat along axes of length 1."""
    data = call.input(0)
    target = call.input(1)
    if data.batch is None and target.batch is None and target.contents() is None:
        return [uniform()]
    return [expanded(data, _lengths(target))]


def expanded(data: Value, lengths: Sequence[Size]) -> Value:
    own = shape_of(data)
    rank = max(len(own), len(lengths))
    wanted: list[Size] = [*[1] * (rank - len(lengths)), *lengths]
    given: list[Size] = [*[1] * (rank - len(own)), *own]
    batch = data.batch and data.batch._replace(axis=data.batch.axis + rank - len(own))
    result: list[Size] = []
    for axis, (has, wants) in enumerate(zip(given, wanted, strict=True)):
        if batch is not None and axis == batch.axis:
            if wants not in (1, has):
                raise not_one_row(wants, axis) if not sizes.depends_on_batch(wants) else Unknown("repeats the rows")
            result.append(has)
        elif sizes.depends_on_batch(wants):
            if has != 1:
                raise not_one_row(has, axis)
            result.append(wants)
        else:
            result.append(broadcast_sizes(has, wants))
    return made_of(result, batch) if not data.of_size else _repeated(data, result)


def _repeated(data: Value, lengths: list[Size]) -> Value:
    if data.elements is None or len(data.elements) != 1 or any(map(sizes.depends_on_batch, lengths)):
        raise Unknown("computes with the number of rows")
    count = sizes.product_of(lengths)
    if not isinstance(count, int) or count > 64:
        raise Unknown("computes with the number of rows")
    return Value(tuple(lengths), elements=data.elements * count)


def made_of(lengths: Sequence[Size], batch: Batch | None, elements: Sequence[Element] | None = None) -> Value:
    """Return a tensor of this shape whose rows are equal. An axis that depends on the number of rows is the batch."""
    if batch is None:
        found = [axis for axis, length in enumerate(lengths) if sizes.depends_on_batch(length)]
        if len(found) == 1:
            (axis,) = found
            inner = sizes.per_row(lengths[axis])
            if inner is None:
                raise Unknown(f"makes the length of axis {axis} depend on the number of rows")
            return rows_of(tuple(lengths), Batch(axis, 1, inner))
    value = rows_of(tuple(lengths), batch)
    return Value(value.shape, value.batch, elements) if batch is None else value


def constant_of_shape(call: Call) -> list[Value]:
    """Make a tensor of one number."""
    target = call.input(0)
    if target.batch is None and target.contents() is None:
        return [uniform()]
    lengths = _lengths(target)
    number = call.attributes.get("value")
    element: Element | None = 0.0
    if isinstance(number, Value):
        element = number.elements[0] if number.elements else None
    count = sizes.product_of(lengths)
    known = element is not None and isinstance(count, int) and count <= 64
    return [made_of(lengths, None, [element] * int(count) if known and element is not None else None)]  # type: ignore[arg-type]


def tile(call: Call) -> list[Value]:
    """Repeat a tensor along its axes."""
    data = call.input(0)
    own = shape_of(data)
    if call.opset < 6:
        raise Unknown("has the inputs of opset 1; convert the model to opset 13 or newer")
    repeats = _lengths(call.input(1), "repeats") if call.input(1).contents() is not None else None
    if repeats is None or len(repeats) != len(own):
        if data.batch is None and call.same_for_all() and not data.of_size:
            return [uniform(len(own))]
        raise Unknown("takes its repeats from a tensor of unknown length")
    if all(times == 1 for times in repeats):
        return [data]
    if data.of_size:
        raise Unknown("computes with the number of rows")
    lengths = [sizes.multiply(length, times) for length, times in zip(own, repeats, strict=True)]
    batch = data.batch
    if batch is None:
        for axis, times in enumerate(repeats):
            if sizes.depends_on_batch(times):
                if sizes.per_row(times) != 1:
                    raise Unknown(f"makes the length of axis {axis} depend on the number of rows")
                return [rows_of(tuple(lengths), Batch(axis, 1, own[axis]))]
        return [Value(tuple(lengths))]
    times = repeats[batch.axis]
    if sizes.depends_on_batch(times):
        raise Unknown("repeats the rows as often as there are rows")
    return [rows_of(tuple(lengths), batch._replace(outer=sizes.multiply(times, batch.outer)))]


def range_(call: Call) -> list[Value]:
    """Count."""
    if not call.same_for_all():
        raise Mixes("takes its limits from the rows")
    if any(value.of_size for value in call.given()):
        raise Unknown("numbers the rows")
    first, last, step = (value.integers() for value in call.given()[:3])
    if first and last and step and step[0] and 0 <= len(found := range(first[0], last[0], step[0])) <= 64:
        return [Value((len(found),), elements=list(found))]
    return [uniform(1)]


def pad(call: Call) -> list[Value]:
    """Add elements at the ends of axes."""
    data = call.input(0)
    own, batch = shape_of(data), data.batch
    call.no_rows(2)
    pads: Sequence[Element] | None
    if call.opset >= 11:
        call.no_rows(1)
        pads = call.input(1).elements
        axes = call.axes(3, len(own)) if call.optional(3) is not None else list(range(len(own)))
    else:
        pads = call.integers("pads") or call.integers("paddings")
        axes = list(range(len(own)))
    assert axes is not None
    if batch is not None and batch.axis in axes:
        if pads is None or len(pads) != 2 * len(axes):
            raise Unknown("takes its widths from a tensor that is not a constant")
        at = axes.index(batch.axis)
        if pads[at] != 0 or pads[at + len(axes)] != 0:
            raise Mixes("adds rows at the ends of the batch axis")
    lengths: list[Size] = list(own)
    for at, axis in enumerate(axes):
        if batch is not None and axis == batch.axis:
            continue
        before, after = (pads[at], pads[at + len(axes)]) if pads and len(pads) == 2 * len(axes) else (None, None)
        known = isinstance(before, (int, Sum)) and isinstance(after, (int, Sum))
        lengths[axis] = sizes.add(own[axis], sizes.add(before, after)) if known else sizes.fresh()  # type: ignore[arg-type]
    return [rows_of(tuple(lengths), batch)]


def resize(call: Call) -> list[Value]:
    """Scale along axes; the batch axis must keep its length."""
    data = call.input(0)
    own, batch = whole(data)
    call.no_rows(*range(1, len(call.inputs)))
    if batch is None:
        if any(value.of_size for value in call.given()):
            raise Unknown("computes with the number of rows")
        return [uniform(len(own))]
    axes = [normal_axis(axis, len(own)) for axis in call.integers("axes") or range(len(own))]
    _no_rows_elsewhere(call, axes, batch)
    result = tuple(sizes.fresh() if axis in axes else length for axis, length in enumerate(own))
    if batch.axis in axes:
        _keeps_length(call, own, batch, axes)
        if call.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
            raise Unknown("may crop the batch axis")
    result = tuple(own[axis] if axis == batch.axis else length for axis, length in enumerate(result))
    return [rows_of(result, batch)]


def _no_rows_elsewhere(call: Call, axes: list[int], batch: Batch | None) -> None:
    """Raise Unknown if the new length of an axis other than the batch axis depends on the number of rows."""
    for value in call.given()[1:]:
        for at, element in enumerate(value.elements or ()):
            own_place = batch is not None and at < len(axes) and axes[at] == batch.axis
            if isinstance(element, Sum) and sizes.depends_on_batch(element) and not own_place:
                raise Unknown("computes with the number of rows")


def _keeps_length(call: Call, own: Shape, batch: Batch, axes: list[int]) -> None:
    """Raise Unknown unless a Resize or Upsample leaves the batch axis as it is."""
    at = axes.index(batch.axis)
    if call.operator == "Upsample" and call.opset < 9:
        if call.opset < 7 and batch.axis == 0 and "height_scale" in call.attributes:
            return
        scales: Sequence[object] | None = call.attributes.get("scales")  # type: ignore[assignment]
    else:
        index = 1 if call.operator == "Upsample" or call.opset == 10 else 2
        given = call.optional(index)
        scales = None if given is None or given.shape == (0,) else given.elements
        if given is None or given.shape == (0,):
            wanted = call.input(3)
            if call.text("keep_aspect_ratio_policy", "stretch") != "stretch":
                raise Unknown("chooses one scale for all axes, the batch axis among them")
            if wanted.elements is None or len(wanted.elements) != len(axes):
                raise Unknown("takes its sizes from a tensor that is not a constant")
            if wanted.elements[at] != own[batch.axis]:
                raise Unknown("changes the length of the batch axis")
            return
    if not isinstance(scales, (list, tuple)) or len(scales) != len(axes):
        raise Unknown("takes its scales from a tensor that is not a constant")
    if scales[at] != 1:
        raise Unknown("scales the batch axis")


def center_crop_pad(call: Call) -> list[Value]:
    """Crop or pad axes to given lengths."""
    data = call.input(0)
    if data.of_size:
        raise Unknown("computes with the number of rows")
    own, batch = whole(data)
    call.no_rows(1)
    axes = [normal_axis(axis, len(own)) for axis in call.integers("axes") or range(len(own))]
    if batch is not None and batch.axis in axes:
        wanted = call.input(1).contents()
        if wanted is None or wanted[axes.index(batch.axis)] != own[batch.axis]:
            raise Unknown("changes the length of the batch axis")
    _no_rows_elsewhere(call, axes, batch)
    lengths = (sizes.fresh() if axis in axes and (not batch or axis != batch.axis) else n for axis, n in enumerate(own))
    return [rows_of(tuple(lengths), batch)]


def eye_like(call: Call) -> list[Value]:
    """Make an identity matrix."""
    data = call.input(0)
    if data.batch is not None:
        raise Mixes("makes the result of a row depend on its position in the batch")
    return [Value(data.shape)]
