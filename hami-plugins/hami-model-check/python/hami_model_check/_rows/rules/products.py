"""Matrix products, convolutions, pooling, and what works on images of the layout [batch, channels, …]."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hami_model_check._rows import size as sizes
from hami_model_check._rows.call import Call, whole
from hami_model_check._rows.size import Size
from hami_model_check._rows.value import (
    Batch,
    Mixes,
    Shape,
    Unknown,
    Value,
    broadcast,
    rows_of,
    shape_of,
    uniform,
)


def matmul(call: Call) -> list[Value]:
    """Multiply matrices; the axes before the last two are broadcast."""
    return [_product(call.input(0), call.input(1))]


def fused_matmul(call: Call) -> list[Value]:
    """Multiply matrices, after transposing one or both."""
    if call.integer("transBatchA", 0) or call.integer("transBatchB", 0):
        raise Unknown("moves the first axis of a matrix")
    call.no_rows(2)
    left, right = call.input(0), call.input(1)
    return [
        _product(
            _transposed(left) if call.integer("transA", 0) else left,
            _transposed(right) if call.integer("transB", 0) else right,
        )
    ]


def _transposed(value: Value) -> Value:
    shape, batch = shape_of(value), value.batch
    rank = len(shape)
    if rank < 2:
        return value
    if batch is not None and batch.axis >= rank - 2:
        batch = batch._replace(axis=2 * rank - 3 - batch.axis)
    return Value((*shape[:-2], shape[-1], shape[-2]), batch)


def _product(left: Value, right: Value) -> Value:
    if left.batch is None and right.batch is None and (left.shape is None or right.shape is None):
        return uniform()
    a, b = shape_of(left), shape_of(right)
    if not a or not b:
        raise Unknown("multiplies a scalar as a matrix")
    _not_contracted(left, len(a) - 1)
    _not_contracted(right, max(len(b) - 2, 0))
    heads, rows, columns = _heads(left, a), a[-2:-1], b[-1:] if len(b) > 1 else ()
    lead = broadcast([heads, _heads(right, b)])
    shape = (*shape_of(lead), *rows, *columns)
    batches = [lead.batch] if lead.batch is not None else []
    if left.batch is not None and left.batch.axis == len(a) - 2:
        batches.append(left.batch._replace(axis=len(shape_of(lead))))
    if right.batch is not None and len(b) > 1 and right.batch.axis == len(b) - 1:
        batches.append(right.batch._replace(axis=len(shape) - 1))
    if len(batches) > 1:
        raise Mixes("multiplies each row with each other row")
    return rows_of(shape, batches[0] if batches else None)


def _not_contracted(value: Value, axis: int) -> None:
    if value.batch is not None and value.batch.axis == axis:
        raise Mixes(f"sums products along axis {axis}, which is the batch axis")


def _heads(value: Value, shape: Shape) -> Value:
    """Return the axes before the matrices, as a value of their own."""
    lead = shape[:-2]
    batch = value.batch if value.batch is not None and value.batch.axis < len(lead) else None
    return Value(lead, batch)


def gemm(call: Call) -> list[Value]:
    """Multiply two matrices and add a third."""
    left, right = call.input(0), call.input(1)
    if call.opset < 7 and call.integer("broadcast", 0) and call.optional(2) is not None:
        call.no_rows(2)
    result = _product(
        _transposed(left) if call.integer("transA", 0) else left,
        _transposed(right) if call.integer("transB", 0) else right,
    )
    added = call.optional(2)
    if added is None:
        return [result]
    return [broadcast([result, added])]


def integer_matmul(call: Call) -> list[Value]:
    """Multiply matrices of integers with constant zero points."""
    left, right = call.input(0), call.input(1)
    call.no_rows(2, 3)
    for index in (2, 3):
        _one_for_all_rows(call, index, left if index == 2 else right)
    return [_product(left, right)]


def quantised_matmul(call: Call) -> list[Value]:
    """Multiply quantised matrices with constant scales."""
    left, right = call.input(0), call.input(3)
    call.no_rows(1, 2, 4, 5, 6, 7)
    for index in (1, 2):
        _one_for_all_rows(call, index, left)
    for index in (4, 5):
        _one_for_all_rows(call, index, right)
    result = _product(left, right)
    for index in (6, 7):
        _one_for_all_rows(call, index, result)
    return [result]


def matmul_to_float(call: Call) -> list[Value]:
    """Multiply quantised matrices with given scales."""
    left, right = call.input(0), call.input(1)
    call.no_rows(*range(2, 7))
    for index in (2, 4):
        _one_for_all_rows(call, index, left)
    for index in (3, 5):
        _one_for_all_rows(call, index, right)
    return [_product(left, right)]


def quantised_gemm(call: Call) -> list[Value]:
    """Multiply quantised matrices with constant scales and add a bias."""
    call.no_rows(*range(1, 9))
    left = call.input(0)
    for index in (1, 2, 7, 8):
        _one_for_all_rows(call, index, left)
    bias = call.optional(6)
    if bias is not None and (bias.rank is None or bias.rank > 1):
        raise Unknown("adds a bias of more than one axis")
    return [
        _product(
            _transposed(left) if call.integer("transA", 0) else left,
            _transposed(call.input(3)) if call.integer("transB", 0) else call.input(3),
        )
    ]


def _one_for_all_rows(call: Call, index: int, data: Value) -> None:
    """Raise Unknown if a scale or zero point of an input with rows has more than one number."""
    scale = call.optional(index)
    if scale is None or data.batch is None:
        return
    if scale.shape is None or sizes.product_of(scale.shape) != 1:
        raise Unknown(f"has one scale or zero point for each row of its input {index}")


def weights_in_bits(call: Call) -> list[Value]:
    """Multiply by packed weights along the last axis."""
    data = call.input(0)
    shape = shape_of(data)
    call.no_rows(*range(1, len(call.inputs)))
    _not_contracted(data, len(shape) - 1)
    return [rows_of((*shape[:-1], call.integer("N", 0)), data.batch)]


def einsum(call: Call) -> list[Value]:
    """Sum products along the axes that the equation names."""
    values = call.given()
    if call.same_for_all():
        return [uniform()]
    equation = call.text("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = [_letters(term, shape_of(value)) for term, value in zip(left.split(","), values, strict=False)]
    if len(terms) != len(values):
        raise Unknown(f'has the equation "{equation}" for {len(values)} inputs')
    dots = max((sum(letter < 0 for letter in term) for term in terms), default=0)
    if arrow:
        result = _expanded(right, dots)
    else:
        every = [letter for term in terms for letter in term]
        named = sorted(letter for letter in set(every) if letter >= 0 and every.count(letter) == 1)
        result = [*range(-dots, 0), *named]
    marks = {term[value.batch.axis] for term, value in zip(terms, values, strict=True) if value.batch is not None}
    if len(marks) > 1:
        raise Mixes("combines axes of two inputs that are both the batch: each row meets each other row")
    (mark,) = marks
    if mark not in result:
        raise Mixes("sums products along the batch axis")
    if any(term.count(mark) > 1 for term in terms) or result.count(mark) > 1:
        raise Unknown("takes a diagonal along the batch axis")
    lengths: dict[int, Size] = {}
    batches = set()
    for term, value in zip(terms, values, strict=True):
        for letter, length in zip(term, shape_of(value), strict=True):
            if letter != mark:
                lengths[letter] = length if letter not in lengths or lengths[letter] == 1 else lengths[letter]
            elif value.batch is None:
                if length != 1:
                    raise Unknown("combines the batch axis with a tensor that has no batch axis")
            else:
                lengths[mark] = length
                batches.add(value.batch._replace(axis=result.index(mark)))
    if len(batches) > 1:
        raise Unknown("combines rows with blocks of rows")
    return [rows_of(tuple(lengths[letter] for letter in result), batches.pop())]


def _letters(term: str, shape: Shape) -> list[int]:
    """Return the axes of an input: a letter as its code, axes of the ellipsis as negative numbers from the right."""
    if not re.fullmatch(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*", term):
        raise Unknown(f'has the term "{term}" in its equation')
    dots = len(shape) - len(term.replace(".", ""))
    if dots < 0 or (dots and "..." not in term):
        raise Unknown(f'has the term "{term}" for an input of {len(shape)} axes')
    return _expanded(term, dots)


def _expanded(term: str, dots: int) -> list[int]:
    before, ellipsis, after = term.partition("...")
    return [*map(ord, before), *(range(-dots, 0) if ellipsis else ()), *map(ord, after)]


def _images(call: Call, *, weights: Sequence[int] = (), channels_apart: bool = False) -> Batch | None:
    """Return the batch of the first input, whose rows must be along axis 0, or along the channels if they are apart."""
    data = call.input(0)
    call.no_rows(*weights)
    if data.batch is None or data.batch.axis == 0 or (channels_apart and data.batch.axis == 1):
        return data.batch
    what = "combines the channels of" if data.batch.axis == 1 else "combines neighbouring places along"
    raise Mixes(f"{what} axis {data.batch.axis}, which is the batch axis")


def _unknown_after(data: Value, kept: int, batch: Batch | None) -> Value:
    shape = shape_of(data)
    return rows_of((*shape[:kept], *(sizes.fresh() for _ in shape[kept:])), batch)


def convolution(call: Call) -> list[Value]:
    """Convolve images with constant weights."""
    data = call.input(0)
    batch = _images(call, weights=range(1, len(call.inputs)))
    if call.operator == "QLinearConv" and batch is not None:
        for index in (1, 2, 6, 7):
            _one_for_all_rows(call, index, data)
    if call.operator == "ConvInteger" and batch is not None:
        _one_for_all_rows(call, 2, data)
    if data.shape is None:
        return [Value(None, batch)]
    weights = call.optional(3 if call.operator == "QLinearConv" else 1)
    known = call.operator != "ConvTranspose"
    channels = weights.shape[0] if known and weights is not None and weights.shape else sizes.fresh()
    if call.integer("channels_last", 0):
        return [_unknown_after(data, 1, batch)]
    shape = data.shape
    window: Sequence[Size] | None = None
    if weights is not None and weights.shape:
        window = weights.shape[2:]
    places = _places(call, shape[2:], window) if known else [sizes.fresh() for _ in shape[2:]]
    return [rows_of((shape[0], channels, *places), batch)]


def fused_convolution(call: Call) -> list[Value]:
    """Convolve images with constant weights and add another tensor of rows."""
    added = call.optional(3)
    if added is None or (added.batch is None and call.input(0).batch is None):
        return convolution(call)
    if added.batch != call.input(0).batch:
        raise Unknown("adds a tensor whose rows are not those of the images")
    call.inputs[3] = None
    return convolution(call)


def deformed_convolution(call: Call) -> list[Value]:
    """Convolve images at places that come from the rows."""
    if call.same_for_all():
        return [uniform(call.input(0).rank)]
    call.no_rows(1, 3)
    for index in (0, 2, 4):
        value = call.optional(index)
        if value is not None and value.batch != Batch(0):
            raise Unknown(f"needs the batch axis first in its input {index}")
    return [_unknown_after(call.input(0), 1, Batch(0))]


def pooling(call: Call) -> list[Value]:
    """Combine neighbouring places of images, each channel by itself."""
    data = call.input(0)
    last = bool(call.integer("channels_last", 0))
    batch = _images(call, weights=range(1, len(call.inputs)), channels_apart=not last)
    if data.shape is None:
        return [Value(None, batch) for _ in call.outputs]
    if len(call.outputs) > 1 and batch is not None and call.outputs[1]:
        raise Mixes("returns places that are counted over the whole batch")
    if last:
        result = _unknown_after(data, 1, batch)
    elif call.operator.startswith(("Global", "QLinearGlobal")):
        result = rows_of((*data.shape[:2], *(1 for _ in data.shape[2:])), batch)
    else:
        result = rows_of((*data.shape[:2], *_places(call, data.shape[2:], call.integers("kernel_shape"))), batch)
    return [result for _ in call.outputs]


def _places(call: Call, lengths: Shape, window: Sequence[Size] | None) -> list[Size]:
    """Return the number of places of a sliding window along each axis."""
    count = len(lengths)
    strides = call.integers("strides") or [1] * count
    spread = call.integers("dilations") or [1] * count
    pads = call.integers("pads") or [0] * (2 * count)
    same = call.text("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")
    if window is None or call.integer("ceil_mode", 0) or len(pads) != 2 * count or len(window) != count:
        return [sizes.fresh() for _ in lengths]
    places: list[Size] = []
    for at, length in enumerate(lengths):
        width = window[at]
        if not isinstance(length, int) or not isinstance(width, int):
            places.append(sizes.fresh())
        elif same:
            places.append(-(-length // strides[at]))
        else:
            covered = (width - 1) * spread[at] + 1
            places.append(max(0, (length + pads[at] + pads[at + count] - covered) // strides[at] + 1))
    return places


def channels_mixed(call: Call) -> list[Value]:
    """Combine places or channels within each image."""
    batch = _images(call, weights=range(1, len(call.inputs)))
    data = call.input(0)
    if data.shape is None or call.operator == "Col2Im":
        return [Value(None, batch)]
    if call.operator in ("LRN", "InstanceNormalization", "GroupNormalization", "GroupNorm"):
        return [Value(data.shape, batch)]
    return [_unknown_after(data, 1, batch) for _ in call.outputs]


def batch_normalisation(call: Call) -> list[Value]:
    """Scale channels by statistics that are constants."""
    data = call.input(0)
    call.no_rows(1, 2, 3, 4)
    training = call.integer("training_mode", 0) or (
        call.opset < 14 and (len([name for name in call.outputs if name]) > 1)
    )
    if call.opset < 7 and not call.integer("is_test", 0):
        training = 1
    if data.batch is None:
        return [Value(data.shape), *(uniform() for _ in call.outputs[1:])]
    if training:
        raise Mixes("computes the mean and deviation of all rows (training mode)")
    if data.batch.axis == 1 or (data.batch.axis > 1 and not call.integer("spatial", 1)):
        raise Unknown(f"has its own constants for each place along axis {data.batch.axis}, which is the batch axis")
    return [Value(data.shape, data.batch) for _ in call.outputs]


def by_rows(call: Call) -> list[Value]:
    """Work on rows along axis 0 of the inputs that have rows."""
    if call.same_for_all():
        return [uniform() for _ in call.outputs]
    for index, value in enumerate(call.inputs):
        if value is not None and value.batch != Batch(0):
            raise Unknown(f"needs the batch axis first in its input {index}")
    return [_unknown_after(call.input(0), 1, Batch(0)) for _ in call.outputs]


def regions(call: Call) -> list[Value]:
    """Take regions of images by the number of the image."""
    if call.same_for_all():
        return [uniform(4)]
    images, boxes, numbers = call.input(0), call.input(1), call.optional(2)
    if images.batch is not None:
        raise Mixes("takes regions from any image of the batch")
    if boxes.batch != Batch(0) or (numbers is not None and numbers.batch != Batch(0)):
        raise Unknown("takes regions whose rows cannot be followed")
    return [rows_of((shape_of(boxes)[0], *(sizes.fresh() for _ in range(3))), Batch(0))]


def affine_grid(call: Call) -> list[Value]:
    """Make places from matrices."""
    if call.input(0).of_size:
        raise Unknown("computes with the number of rows")
    if call.same_for_all() and not call.input(1).of_size:
        return [uniform()]
    matrices, size = call.input(0), call.input(1)
    shape, batch = whole(matrices)
    if batch != Batch(0) or not size.elements or size.elements[0] != shape[0]:
        raise Unknown("takes its number of rows from elsewhere")
    rank = len(size.elements)
    lengths = [length for length in size.elements[2:] if not isinstance(length, float)]
    return [rows_of((shape[0], *lengths, rank - 2), batch)]
