"""run_batch: runs a batch of requests, those with equal shapes together, so that one bad request fails alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hami
import numpy as np
from hami.batching import group_requests
from hami_tensor.model_keys import give_result
from numpy.typing import NDArray

from hami_onnx._feed import Feed, group_key, read_feed
from hami_onnx._model import Model
from hami_onnx._own import own_part

_MAX_BYTES_WITH_GIL = 1 << 20  # copying 1 MiB takes about 100 us

Member = tuple[Any, Feed]  # a request and what was read from it


def run_batch(batch: list[Any], model: Model, backend: str, count: Callable[[str], None]) -> int:
    """Set the `result` of each request: an array, or a dict by name if the model has several outputs.

    Return the number of groups that ran one after another. `count` adds to a counter of the node.
    """
    joins = model.rows.joins and (model.watch is None or model.watch.joins)
    groups = group_requests(
        batch,
        lambda item: read_feed(item, model, backend),
        lambda feed: group_key(feed, model),
        max_items=None if joins else 1,
    )
    for items, feeds in groups:
        _run_group(list(zip(items, feeds, strict=True)), model, backend, count)
    return len(groups)


def _run_group(members: list[Member], model: Model, backend: str, count: Callable[[str], None]) -> None:
    """Run requests together."""
    rows = sum(feed.rows for _, feed in members)
    try:
        arrays = [
            parts[0] if axis is None or len(parts) == 1 else _concatenate(parts, axis)
            for parts, axis in zip(
                zip(*(feed.arrays for _, feed in members), strict=True), model.rows.input_axes, strict=True
            )
        ]
        outputs = _run_rows(arrays, rows, members[0][1].extra, model)
    except Exception as error:
        # One bad request (an index out of range, for example) must not fail the others.
        if len(members) > 1:
            _run_one_by_one(members, model, backend, count)
        else:
            _fail(members, error, backend)
        return
    if len(members) > 1 and not _have_rows(outputs, rows, model):
        _run_one_by_one(members, model, backend, count)  # the rows of an output cannot be assigned to the requests
        return
    if len(members) > 1 and model.watch is not None and model.watch.is_due():
        count("watched")
        if not _row_is_the_same_alone(arrays, outputs, rows, model):
            count("watch_differences")
            if not model.watch.joins:
                _run_one_by_one(members, model, backend, count)
                return
    start = 0
    for item, feed in members:
        stop = start + feed.rows
        own = outputs if len(members) == 1 else _part(outputs, start, stop, rows, model)
        _give(item, own, feed, model)
        start = stop


def _run_rows(arrays: list[Any], rows: int, extra: dict[str, Any], model: Model) -> list[Any]:
    """Run the model on rows; with a fixed number of rows in blocks, the last one padded with copies of its last row."""
    fixed = model.rows.fixed
    if fixed is None or rows == fixed or (rows == 1 and model.rows.runs_one):
        return model.run(arrays, extra)
    blocks = []
    for start in range(0, max(rows, 1), fixed):
        length = min(fixed, rows - start)
        block = [
            array if axis is None else _filled(array, axis, start, length, fixed)
            for array, axis in zip(arrays, model.rows.input_axes, strict=True)
        ]
        outputs = model.run(block, extra)
        blocks.append(_part(outputs, 0, length, fixed, model))
    if len(blocks) == 1:
        return blocks[0]
    return [
        parts[0] if axis is None else _joined(parts, axis)
        for parts, axis in zip(zip(*blocks, strict=True), model.rows.output_axes, strict=True)
    ]


def _joined(parts: Sequence[Any], axis: int) -> Any:
    """Return the rows of blocks of an output: an array, or a list with an element for each row."""
    if isinstance(parts[0], list):
        return [row for part in parts for row in part]
    return np.concatenate(parts, axis=axis)


def _filled(array: NDArray[Any], axis: int, start: int, length: int, fixed: int) -> NDArray[Any]:
    """Return rows of an array, with copies of the last one up to `fixed` rows; without a row, zeros."""
    if not length:
        shape = (*array.shape[:axis], fixed, *array.shape[axis + 1 :])
        return np.full(shape, "", object) if array.dtype.hasobject else np.zeros(shape, array.dtype)
    indices = [start + min(i, length - 1) for i in range(fixed)]
    return np.ascontiguousarray(np.take(array, indices, axis=axis))


def _have_rows(outputs: Sequence[Any], rows: int, model: Model) -> bool:
    """Return whether the rows of all outputs can be assigned to requests."""
    return all(
        axis is None or _length(output, axis) == rows
        for output, axis in zip(outputs, model.rows.output_axes, strict=True)
    )


def _length(output: Any, axis: int) -> int:
    if isinstance(output, list):
        return len(output) if axis == 0 else -1
    shape: tuple[int, ...] = np.shape(output)
    return shape[axis] if axis < len(shape) else -1


def _row_is_the_same_alone(arrays: list[Any], outputs: list[Any], rows: int, model: Model) -> bool:
    """Run the last row of a batch alone, and compare it with what it got in the batch."""
    assert model.watch is not None
    if not rows or not all(isinstance(output, np.ndarray) for output in outputs):
        return True
    row = [
        array if axis is None else np.ascontiguousarray(np.take(array, [rows - 1], axis=axis))
        for array, axis in zip(arrays, model.rows.input_axes, strict=True)
    ]
    return model.watch.compare(
        [spec.name for spec in model.outputs],
        _part(outputs, rows - 1, rows, rows, model),
        lambda: _run_rows(row, 1, {}, model),
        rows=rows,
    )


def _part(outputs: Sequence[Any], start: int, stop: int, rows: int, model: Model) -> list[Any]:
    """Return rows of the outputs."""
    return [
        own_part(output, axis, start, stop, rows) for output, axis in zip(outputs, model.rows.output_axes, strict=True)
    ]


def _concatenate(parts: Sequence[NDArray[Any]], axis: int) -> NDArray[Any]:
    """Concatenate contiguous arrays of one dtype, along axis 0 without releasing the GIL if they are small.

    np.concatenate releases the GIL for each part with more than 500 elements. Callers whose requests have just been
    completed then take it and delay the batch. Copying a few hundred kilobytes takes less time than one hand-over.
    """
    first = parts[0]
    size = sum(part.nbytes for part in parts)
    if axis or first.dtype.hasobject or not 0 < size <= _MAX_BYTES_WITH_GIL:
        return np.concatenate(parts, axis=axis)
    joined: NDArray[Any] = np.empty((sum(part.shape[0] for part in parts), *first.shape[1:]), first.dtype)
    target = _bytes_of(joined)
    start = 0
    for part in parts:
        stop = start + part.nbytes
        target[start:stop] = _bytes_of(part)
        start = stop
    return joined


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """Return the bytes of a contiguous array without a copy."""
    view: memoryview = array.reshape(-1).view(np.uint8).data
    return view


def _run_one_by_one(members: list[Member], model: Model, backend: str, count: Callable[[str], None]) -> None:
    for member in members:
        _run_group([member], model, backend, count)


def _fail(members: list[Member], error: Exception, backend: str) -> None:
    text = str(error)
    failure = hami.RequestError(text if text.startswith(backend) else f"{backend}: {text}")
    failure.__cause__ = error
    for item, _ in members:
        item.fail(failure)


def _give(item: Any, outputs: list[Any], feed: Feed, model: Model) -> None:
    if feed.without_batch_axis:
        outputs = [_without_axis(output, axis) for output, axis in zip(outputs, model.rows.output_axes, strict=True)]
    if len(outputs) == 1:
        item["result"] = outputs[0]
    else:
        give_result(item, {spec.name: output for spec, output in zip(model.outputs, outputs, strict=True)})


def _without_axis(output: Any, axis: int | None) -> Any:
    if axis is None or _length(output, axis) != 1:
        return output
    return output[0] if isinstance(output, list) else output[(slice(None),) * axis + (0, ...)]
