"""Runs the rows of a model alone and together, and compares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from hami_model_check.rows import RowProof

Arrays = Mapping[str, np.ndarray]
Axes = Mapping[str, "int | None"]

_SCALES = (1.0, -1.0, 50.0, 0.02)  # rows of different magnitude and sign


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def with_rows(model: onnx.ModelProto, feeds: Arrays, axes: Axes) -> onnx.ModelProto | None:
    """Return the model with a dynamic batch axis in these inputs, and the other inputs as constants.

    None: an input is not a tensor that NumPy has.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.input[:], changed.graph.value_info[:]
    for given in model.graph.input:
        axis = axes.get(given.name)
        if axis is not None:
            dimensions = given.type.tensor_type.shape.dim
            if len(dimensions) <= axis:
                return None
            kept = changed.graph.input.add()
            kept.CopyFrom(given)
            kept.type.tensor_type.shape.dim[axis].Clear()
            kept.type.tensor_type.shape.dim[axis].dim_param = "rows"
        elif isinstance(feeds.get(given.name), np.ndarray):
            constant = numpy_helper.from_array(feeds[given.name], given.name)
            if constant.data_type != given.type.tensor_type.elem_type:
                return None
            changed.graph.initializer.append(constant)
        else:
            return None
    for output in changed.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    return changed


def difference(model: onnx.ModelProto, feeds: Arrays, axes: Axes, proof: RowProof, order: Sequence[int]) -> str | None:
    """Return how rows alone differ from rows together; None: they are equal, or a row alone has no result.

    Args:
        model: a model whose batch axes are dynamic.
        feeds: arrays whose rows are taken, and taken again with another magnitude and sign.
        axes: the batch axes of the inputs.
        proof: that of the model.
        order: the numbers of rows to join.
    """
    try:
        runs = session(model)
        alone = [runs.run(None, _joined(feeds, axes, [row])) for row in order]
    except Exception:  # onnxruntime's exceptions have no common base class but Exception
        return None
    names = [output.name for output in runs.get_outputs()]
    for rows in (range(len(order)), range(2)):
        try:
            together = runs.run(None, _joined(feeds, axes, [order[row] for row in rows]))
        except Exception:
            return None  # the rows then run alone
        for name, output, *single in zip(names, together, *alone, strict=True):
            for row in rows:
                wrong = _compare(output, single[row], proof.output_axes[name], row, len(rows))
                if wrong:
                    return f"output {name}, row {row} of {len(rows)}: {wrong}"
    return None


def _joined(feeds: Arrays, axes: Axes, rows: Sequence[int]) -> dict[str, np.ndarray]:
    given = {}
    for name, axis in axes.items():
        if axis is not None:
            given[name] = np.concatenate([_row(feeds[name], axis, row) for row in rows], axis)
    return given


def _row(array: np.ndarray, axis: int, row: int) -> np.ndarray:
    turn, place = divmod(row, array.shape[axis])
    found = np.take(array, [place], axis)
    if array.dtype.kind != "f":
        return found
    with np.errstate(all="ignore"):
        return (found * array.dtype.type(_SCALES[turn % len(_SCALES)])).astype(array.dtype)


def _compare(together: Any, alone: Any, axis: int | None, row: int, count: int) -> str | None:
    if not isinstance(together, np.ndarray):
        return "not an array"
    if axis is not None:
        if together.ndim <= axis or together.shape[axis] != count:
            return f"shape {together.shape} without the {count} rows along axis {axis}"
        together = np.take(together, [row], axis)
    if together.shape != alone.shape:
        return f"shape {together.shape} instead of {alone.shape}"
    if together.dtype.kind != "f":
        return None if np.array_equal(together, alone) else "other values"
    one, other = together.astype(np.float64), alone.astype(np.float64)
    finite = np.abs(other[np.isfinite(other)])
    tolerance = 2e-3 if together.dtype == np.float16 else 1e-4
    equal = np.allclose(one, other, tolerance, tolerance * max(1.0, finite.max(initial=0)), equal_nan=True)
    return None if equal else f"differs by up to {np.nanmax(np.abs(one - other)):.3g}"


def axes_to_try(feeds: Mapping[str, Any]) -> Iterator[dict[str, int | None]]:
    """Yield batch axes: the same axis of all arrays that have it, and each axis of one array alone."""
    arrays = {name: feed for name, feed in feeds.items() if isinstance(feed, np.ndarray)}
    guesses = []
    for axis in range(3):
        guesses.append({name: axis if feed.ndim > axis else None for name, feed in arrays.items()})
    for chosen, feed in arrays.items():
        for axis in range(min(feed.ndim, 4)):
            guesses.append({name: axis if name == chosen else None for name in arrays})
    for at, guess in enumerate(guesses):
        lengths = {arrays[name].shape[axis] for name, axis in guess.items() if axis is not None}
        if guess not in guesses[:at] and len(lengths) == 1 and 0 not in lengths:
            yield guess
