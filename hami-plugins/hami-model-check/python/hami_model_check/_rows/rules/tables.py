"""Operators of ai.onnx.ml, which work on tables [rows, features], and operators on strings."""

from __future__ import annotations

from hami_model_check._rows import size as sizes
from hami_model_check._rows.call import Call, whole
from hami_model_check._rows.value import Batch, Mixes, Unknown, Value, rows_of, shape_of, uniform


def table(call: Call) -> list[Value]:
    """Compute from each row of a table."""
    data = _table(call)
    if data is None:
        return [uniform(2) for _ in call.outputs]
    if call.operator in ("Scaler", "Normalizer", "Imputer"):
        return [Value(data.shape, data.batch)]
    return [rows_of((shape_of(data)[0], sizes.fresh()), Batch(0))]


def classifier(call: Call) -> list[Value]:
    """Choose a class for each row of a table, and score all classes."""
    data = _table(call)
    if data is None:
        return [uniform(1), uniform(2)]
    rows = shape_of(data)[0]
    return [rows_of((rows,), Batch(0)), rows_of((rows, sizes.fresh()), Batch(0))][: len(call.outputs)]


def maps(call: Call) -> list[Value]:
    """Make a list with a map for each row of a table."""
    data = _table(call)
    return [Value(None, data.batch if data is not None else None, is_list=True)]


def _table(call: Call) -> Value | None:
    data = call.input(0)
    if data.batch is None:
        return None
    shape, batch = whole(data)
    if len(shape) != 2 or batch != Batch(0):
        raise Unknown(f"needs a table [batch, features], got {len(shape)} axes with the batch along {data.batch.axis}")
    return data


def features(call: Call) -> list[Value]:
    """Put the features of tables together."""
    if call.same_for_all():
        return [uniform(2)]
    for index, value in enumerate(call.given()):
        if value.batch != Batch(0) or value.rank != 2:
            raise Unknown(f"needs a table [batch, features] in its input {index}")
    return [rows_of((shape_of(call.input(0))[0], sizes.fresh()), Batch(0))]


def one_of_categories(call: Call) -> list[Value]:
    """Add an axis of ones and zeros at the end."""
    data = call.input(0)
    return [rows_of((*shape_of(data), sizes.fresh()), data.batch)]


def n_grams(call: Call) -> list[Value]:
    """Count the words of each row."""
    data = call.input(0)
    if data.batch is None:
        return [uniform(data.rank)]
    shape = shape_of(data)
    if data.batch != Batch(0) or len(shape) != 2:
        raise Mixes("counts the words of all rows together")
    return [rows_of((shape[0], sizes.fresh()), Batch(0))]


def longest_of_all(call: Call) -> list[Value]:
    """Split texts into as many parts as the longest of all has."""
    data = call.input(0)
    if data.batch is not None:
        raise Mixes("pads each row to the longest of all rows")
    return [uniform(), uniform()]
