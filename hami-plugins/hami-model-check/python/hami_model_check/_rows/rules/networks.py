"""Recurrent layers, attention, and other layers that are one operator."""

from __future__ import annotations

from hami_model_check._rows import size as sizes
from hami_model_check._rows.call import Call, whole
from hami_model_check._rows.size import Size
from hami_model_check._rows.value import (
    Batch,
    Fails,
    Mixes,
    MixesByScale,
    Unknown,
    Value,
    broadcast,
    rows_of,
    shape_of,
    uniform,
)


def recurrent(call: Call) -> list[Value]:
    """Run over time: axis 0 with layout 0, axis 1 with layout 1; the batch is the other of the two."""
    if call.same_for_all():
        return [uniform() for _ in call.outputs]
    data = call.input(0)
    shape, batch = whole(data)
    if len(shape) != 3:
        raise Fails(f"has an input of {len(shape)} axes, where 3 are expected")
    call.no_rows(1, 2, 3, 7)
    layout = call.integer("layout", 0)
    along = 0 if layout else 1
    if batch is None:
        raise Unknown("has an input sequence without a batch axis")
    if batch.axis == 1 - along:
        raise Mixes(f"runs over axis {batch.axis} as time, which is the batch axis")
    if batch.axis != along:
        raise Mixes(f"combines the features of axis {batch.axis}, which is the batch axis")
    for index, place in ((4, 0), (5, along), (6, along)):
        value = call.optional(index)
        if value is None or value.batch == Batch(place):
            continue
        if value.batch is not None:
            raise Unknown(f"has another batch axis in its input {index}")
        if value.shape is None or len(value.shape) <= place or value.shape[place] != 1 or shape[along] != 1:
            raise Unknown(f"takes its input {index} from a constant of a fixed number of rows")
    directions = 2 if call.text("direction", "forward") == "bidirectional" else 1
    hidden: Size = call.integer("hidden_size", 0) or sizes.fresh()
    rows, time = shape[along], shape[1 - along]
    if layout:
        every = rows_of((rows, time, directions, hidden), Batch(0))
        last = rows_of((rows, directions, hidden), Batch(0))
    else:
        every = rows_of((time, directions, rows, hidden), Batch(2))
        last = rows_of((directions, rows, hidden), Batch(1))
    return [every, *(last for _ in call.outputs[1:])]


def quantised_recurrent(call: Call) -> list[Value]:
    """Run over time with one scale for all rows."""
    if call.same_for_all():
        return [uniform() for _ in call.outputs]
    raise MixesByScale("computes one scale from all rows (dynamic quantisation)")


def dynamic_scale(call: Call) -> list[Value]:
    """Compute one scale for the whole tensor."""
    data = call.input(0)
    if data.batch is not None:
        raise MixesByScale("computes one scale from all rows (dynamic quantisation)")
    return [Value(data.shape), Value(()), Value(())]


def dynamic_matmul(call: Call) -> list[Value]:
    """Multiply matrices with one scale for the whole left one."""
    if call.input(0).batch is not None:
        raise MixesByScale("computes one scale from all rows (dynamic quantisation)")
    call.no_rows(*range(len(call.inputs)))
    return [uniform()]


def quantise(call: Call) -> list[Value]:
    """Convert between numbers and quantised numbers with given scales."""
    data, scale = call.input(0), call.input(1)
    zero = call.optional(2)
    if call.same_for_all():
        return [Value(data.shape)]
    shape = shape_of(data)
    if data.batch is None:
        raise Unknown("takes its scale from the rows")
    if any(value is not None and value.batch is not None for value in (scale, zero)):
        raise Unknown("takes its scale from the rows")
    if data.batch is not None and (scale.shape is None or sizes.product_of(scale.shape) != 1):
        axis = call.integer("axis", 1)
        axis += len(shape) if axis < 0 else 0
        if scale.rank != 1:
            raise Unknown("has scales for blocks")
        if axis == data.batch.axis:
            raise Unknown(f"has its own scale for each place along axis {axis}, which is the batch axis")
    return [Value(shape, data.batch)]


def attention(call: Call) -> list[Value]:
    """Let the places of a row look at each other; rows stay apart along axis 0."""
    return _first_axis(call, masks=(3,))


def fused_attention(call: Call) -> list[Value]:
    """Compute attention from one input and constant weights."""
    past = call.optional(4)
    if call.integer("past_present_share_buffer", 0):
        raise Unknown("writes into a buffer that it shares with other runs")
    if past is not None:
        if past.batch != Batch(1):
            raise Unknown("needs the batch axis second in its input 4")
        call.inputs[4] = None
    results = _first_axis(call, masks=(5,), weights=(1, 2, 6))
    if len(results) > 1 and results[1].batch is not None:
        rows, *rest = shape_of(results[1])
        results[1] = Value((2, rows, *rest), Batch(1))
    return results


def heads_attention(call: Call) -> list[Value]:
    """Compute attention from queries, keys and values."""
    return _first_axis(call, masks=(5,), weights=(3, 8))


def _first_axis(call: Call, *, masks: tuple[int, ...], weights: tuple[int, ...] = ()) -> list[Value]:
    """Return outputs with the batch along axis 0, if all inputs but weights and masks have it there."""
    if call.same_for_all():
        return [uniform() for _ in call.outputs]
    shape, batch = whole(call.input(0))
    if batch != Batch(0):
        where = "no axis" if batch is None else f"axis {batch.axis}"
        if batch is not None:
            raise Mixes(f"lets all places along {where} look at each other, which is the batch axis")
        raise Unknown("has queries without a batch axis")
    for index, value in enumerate(call.inputs):
        if value is None or index in weights:
            continue
        if index in masks:
            _check_mask(value)
        elif value.batch != Batch(0):
            raise Unknown(f"needs the batch axis first in its input {index}")
        elif value.rank is None:
            raise Unknown(f"has an input {index} whose number of axes is not known")
    call.no_rows(*weights)
    if len(shape) not in (3, 4):
        raise Unknown(f"has queries of {len(shape)} axes")
    results = [rows_of((*shape[:-1], sizes.fresh()), Batch(0))]
    for _ in call.outputs[1:]:
        results.append(rows_of((shape[0], *(sizes.fresh() for _ in range(3))), Batch(0)))
    return results


def _check_mask(mask: Value) -> None:
    """Raise Unknown unless a mask [batch, heads, queries, keys] is the same for all rows or has rows along axis 0."""
    shape = shape_of(mask)
    if mask.batch is None:
        if len(shape) == 4 and shape[0] != 1:
            raise Unknown("has a mask with a fixed number of rows")
        if len(shape) > 4:
            raise Unknown("has a mask of more than 4 axes")
    elif mask.batch != Batch(0) or len(shape) != 4:
        raise Unknown("has a mask whose rows cannot be followed")


def rotary(call: Call) -> list[Value]:
    """Turn the numbers of a row by the place in the row."""
    return _rotary(call, tables=(1, 2), places=3)


def rotary_with_places(call: Call) -> list[Value]:
    """Turn the numbers of a row by the place in the row; the places are the second input."""
    return _rotary(call, tables=(2, 3), places=1)


def _rotary(call: Call, *, tables: tuple[int, int], places: int) -> list[Value]:
    if call.same_for_all():
        return [uniform(call.input(0).rank)]
    shape, batch = whole(call.input(0))
    given = call.optional(places)
    if batch != Batch(0) or call.integer("is_packed_batching", 0):
        raise Unknown("needs the batch axis first in its input 0")
    if (
        given is not None
        and given.batch != Batch(0)
        and (given.batch is not None or given.shape is None or sizes.product_of(given.shape) != 1)
    ):
        raise Unknown("has places whose rows cannot be followed")
    for index in tables:
        value = call.input(index)
        if value.batch != Batch(0) if given is None else value.batch is not None or value.rank != 2:
            raise Unknown(f"has a table whose rows cannot be followed (input {index})")
    return [Value(shape, batch)]


def skip_normalisation(call: Call) -> list[Value]:
    """Add two tensors and normalise along the last axis."""
    data, skip = call.input(0), call.input(1)
    call.no_rows(*range(2, len(call.inputs)))
    total = broadcast([data, skip])
    shape = shape_of(total)
    if data.batch is None and skip.batch is not None:
        raise Unknown("adds rows to a tensor without a batch axis")
    if data.shape is not None and skip.shape is not None and len(data.shape) != len(skip.shape):
        raise Unknown("adds tensors with different numbers of axes")
    if total.batch is not None and total.batch.axis == len(shape) - 1:
        raise Mixes(f"normalises along axis {total.batch.axis}, which is the batch axis")
    return [Value(shape, total.batch) for _ in call.outputs]


def embed(call: Call) -> list[Value]:
    """Look up words and places, add and normalise."""
    if call.same_for_all():
        return [uniform() for _ in call.outputs]
    call.no_rows(2, 3, 4, 5, 6)
    for index in (0, 1, 7, 8):
        value = call.optional(index)
        if value is None or value.batch == Batch(0):
            continue
        if index == 8 and value.batch is None and value.shape is not None and value.shape[:1] == (1,):
            continue
        raise Unknown(f"needs the batch axis first in its input {index}")
    shape, _ = whole(call.input(0))
    words = rows_of((*shape, sizes.fresh()), Batch(0))
    return [words, Value(shape[:1], Batch(0)), words][: len(call.outputs)]


def last_axis_bias(call: Call) -> list[Value]:
    """Add a bias along the last axis and apply a function."""
    call.no_rows(1)
    return [broadcast(call.given())]


def draws(call: Call) -> list[Value]:
    """Draw random numbers."""
    raise Unknown("draws random numbers, which differ in each run")


def dropout(call: Call) -> list[Value]:
    """Copy the input, unless in training."""
    data = call.input(0)
    training = call.optional(2)
    if call.opset < 7:
        if not call.integer("is_test", 0):
            raise Unknown("draws random numbers, which differ in each run (training mode)")
    elif training is not None and training.elements not in ((False,), (0,)):
        raise Unknown("may draw random numbers, which differ in each run (training mode)")
    return [Value(data.shape, data.batch) for _ in call.outputs]


def unfollowed(call: Call) -> list[Value]:
    """Work in a way that no rule describes."""
    if call.same_for_all() and not any(value.of_size for value in call.given()):
        return [uniform() for _ in call.outputs]
    raise Unknown("is an operator whose rows are not followed")


def short_time_fourier(call: Call) -> list[Value]:
    """Transform windows of each row."""
    call.no_rows(1, 2, 3)
    data = call.input(0)
    if data.batch is None:
        return [uniform(4)]
    if data.batch != Batch(0):
        raise Mixes(f"transforms along axis {data.batch.axis}, which is the batch axis")
    return [rows_of((shape_of(data)[0], sizes.fresh(), sizes.fresh(), 2), Batch(0))]
