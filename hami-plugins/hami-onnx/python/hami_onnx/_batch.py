"""run_batch: runs a batch of requests, those with equal shapes together, so that one bad request fails alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hami
import numpy as np
from hami.batching import group_requests
from numpy.typing import NDArray

from hami_onnx._feed import Feed, read_feed
from hami_onnx._model import Model

_MAX_BYTES_WITH_GIL = 1 << 20  # copying 1 MiB takes about 100 us


def run_batch(batch: list[Any], model: Model, backend: str) -> int:
    """Set the `result` of each request: an array, or a dict by name if the model has several outputs.

    Return the number of groups that ran one after another.
    """
    groups = group_requests(
        batch,
        lambda item: read_feed(item, model, backend),
        lambda feed: tuple(array.shape[1:] for array in feed.arrays),
        max_items=None if model.has_batch_axis else 1,
    )
    accepted = sum(len(items) for items, _ in groups)
    # A group is smaller than the batch if a request was rejected or shapes differ. A model with a fixed number of rows
    # can then run only with padding.
    pad = accepted < len(batch) or len(groups) > 1
    for items, feeds in groups:
        _run_group(list(zip(items, feeds, strict=True)), model, backend, pad=pad)
    return len(groups)


def _run_group(members: list[tuple[Any, Feed]], model: Model, backend: str, *, pad: bool) -> None:
    """Run requests together. With `pad`, repeated rows fill the batch up to the fixed number of rows of the model."""
    rows = sum(feed.rows for _, feed in members)
    total = max(rows, model.fixed_rows) if model.fixed_rows and pad and rows else rows
    if model.fixed_rows and total != model.fixed_rows:
        text = f"{backend}: the model takes batches of exactly {model.fixed_rows} rows (axis 0), got {rows}"
        _fail(members, hami.RequestError(text), backend)
        return
    try:
        arrays = [
            _concatenate(parts) if len(members) > 1 else parts[0]
            for parts in zip(*(feed.arrays for _, feed in members), strict=True)
        ]
        if total > rows:
            arrays = [np.concatenate([array, np.repeat(array[:1], total - rows, axis=0)]) for array in arrays]
        outputs = model.run(arrays)
    except Exception as error:
        # One bad request (an index out of range, for example) must not fail the others.
        if len(members) > 1:
            _run_one_by_one(members, model, backend)
        else:
            _fail(members, error, backend)
        return
    if len(members) > 1 and any(np.shape(output)[:1] != (total,) for output in outputs):
        _run_one_by_one(members, model, backend)  # the rows of an output cannot be assigned to the requests
        return
    start = 0
    for item, feed in members:
        stop = start + feed.rows
        own = outputs if feed.rows == total else [output[start:stop] for output in outputs]
        item["result"] = _result(own, feed, model)
        start = stop


def _concatenate(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate contiguous arrays of one dtype along axis 0, without releasing the GIL if they are small.

    np.concatenate releases the GIL for each part with more than 500 elements. Callers whose requests have just been
    completed then take it and delay the batch. Copying a few hundred kilobytes takes less time than one hand-over.
    """
    first = parts[0]
    size = sum(part.nbytes for part in parts)
    if first.dtype.hasobject or not 0 < size <= _MAX_BYTES_WITH_GIL:
        return np.concatenate(parts)
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


def _run_one_by_one(members: list[tuple[Any, Feed]], model: Model, backend: str) -> None:
    for member in members:
        _run_group([member], model, backend, pad=True)


def _fail(members: list[tuple[Any, Feed]], error: Exception, backend: str) -> None:
    text = str(error)
    failure = hami.RequestError(text if text.startswith(backend) else f"{backend}: {text}")
    failure.__cause__ = error
    for item, _ in members:
        item.fail(failure)


def _result(outputs: list[Any], feed: Feed, model: Model) -> Any:
    if feed.without_batch_axis:
        outputs = [output[0, ...] if np.shape(output)[:1] == (1,) else output for output in outputs]
    if len(outputs) == 1:
        return outputs[0]
    return {spec.name: output for spec, output in zip(model.outputs, outputs, strict=True)}
