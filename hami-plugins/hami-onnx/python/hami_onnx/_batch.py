"""Runs a batch of requests: those of equal shapes together, a failing one without its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hami
import numpy as np

from hami_onnx._feed import Feed, feed_of
from hami_onnx._model import Model

_HELD_BYTES = 1 << 20  # joined with the global lock held: about 100 us


def run_batch(batch: list[Any], model: Model, owner: str) -> None:
    """Give each request its `result`: an array, or a dict by name if the model has several outputs."""
    groups: dict[tuple[object, ...], list[tuple[Any, Feed]]] = {}
    taken = 0
    for index, item in enumerate(batch):
        try:
            feed = feed_of(item, model, owner)
        except hami.Error as error:
            item.fail(error)
            continue
        shapes = tuple(array.shape[1:] for array in feed.arrays) if model.rows != 0 else (index,)
        groups.setdefault(shapes, []).append((item, feed))
        taken += 1
    # Those who came with the rows that the model takes get their results, whatever became of the others.
    parted = taken < len(batch) or len(groups) > 1
    for members in groups.values():
        _run_group(members, model, owner, fill=parted)


def _run_group(members: list[tuple[Any, Feed]], model: Model, owner: str, *, fill: bool) -> None:
    """Run members together; `fill`: rows that the model wants beyond theirs are made up, and their results dropped."""
    rows = sum(feed.rows for _, feed in members)
    total = max(rows, model.rows) if model.rows and fill and rows else rows
    if model.rows and total != model.rows:
        text = f"{owner}: the model takes exactly {model.rows} rows (its axis 0), this batch has {rows}"
        _fail(members, hami.RequestError(text), owner)
        return
    try:
        arrays = [
            _concatenated(parts) if len(members) > 1 else parts[0]
            for parts in zip(*(feed.arrays for _, feed in members), strict=True)
        ]
        if total > rows:
            arrays = [np.concatenate([array, np.repeat(array[:1], total - rows, axis=0)]) for array in arrays]
        outputs = model.run(arrays)
    except Exception as error:
        # What is wrong with one (an index out of range, say) must not fail the others.
        if len(members) > 1:
            _run_singly(members, model, owner)
        else:
            _fail(members, error, owner)
        return
    if len(members) > 1 and any(np.shape(output)[:1] != (total,) for output in outputs):
        _run_singly(members, model, owner)  # an output is not per row: it cannot be told whose is what
        return
    start = 0
    for item, feed in members:
        stop = start + feed.rows
        mine = outputs if feed.rows == total else [output[start:stop] for output in outputs]
        item["result"] = _result(mine, feed, model)
        start = stop


def _concatenated(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Join contiguous arrays of one type along axis 0.

    np.concatenate lets the global lock go for each part above 500 elements. Callers who were just answered wait for it,
    and the batch would begin after them; joining a few hundred kilobytes takes less than one hand-over.
    """
    first = parts[0]
    size = sum(part.nbytes for part in parts)
    if first.dtype.hasobject or not 0 < size <= _HELD_BYTES:
        return np.concatenate(parts)
    joined = np.empty((sum(part.shape[0] for part in parts), *first.shape[1:]), first.dtype)
    room = memoryview(joined.reshape(-1).view(np.uint8))
    start = 0
    for part in parts:
        stop = start + part.nbytes
        room[start:stop] = memoryview(part.reshape(-1).view(np.uint8))
        start = stop
    return joined


def _run_singly(members: list[tuple[Any, Feed]], model: Model, owner: str) -> None:
    for member in members:
        _run_group([member], model, owner, fill=True)


def _fail(members: list[tuple[Any, Feed]], error: Exception, owner: str) -> None:
    text = str(error)
    failure = hami.RequestError(text if text.startswith(owner) else f"{owner}: {text}")
    failure.__cause__ = error
    for item, _ in members:
        item.fail(failure)


def _result(outputs: list[Any], feed: Feed, model: Model) -> Any:
    if feed.alone:
        outputs = [output[0, ...] if np.shape(output)[:1] == (1,) else output for output in outputs]
    if len(outputs) == 1:
        return outputs[0]
    return {port.name: output for port, output in zip(model.outputs, outputs, strict=True)}
