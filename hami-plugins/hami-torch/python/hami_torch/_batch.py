"""Runs a batch of requests through a program: those of equal shapes together, a failing one without its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import hami

from hami_torch._program import first_line
from hami_torch._tensor import (
    TensorBackend,
    as_tensor,
    data_of,
    each_tensor,
    flat,
    form_of,
    named_parts,
    rows_of,
    show,
    size_of,
    without_frames,
)
from hami_torch._torch import torch


class Feed(NamedTuple):
    """One request, ready to run; `form` says how the tensors came."""

    tensors: list[torch.Tensor]
    rows: int
    form: int | tuple[str, ...] | None


def feed_of(item: Any, check: Callable[[torch.Tensor], torch.Tensor]) -> Feed:
    """Read a request; `check` refuses a tensor, and errors say which of the request's is wrong."""
    data = data_of(item, "TorchModel")
    if isinstance(data, torch.Tensor):
        return Feed([rows_of(check(data), item, "TorchModel")], size_of(item), None)
    named = named_parts(data)
    if not named:
        raise hami.RequestError('TorchModel: "data" is empty; it is a tensor, or a list or dict of them')
    tensors = [rows_of(check(as_tensor(part, "TorchModel")), item, "TorchModel", name) for name, part in named.items()]
    return Feed(tensors, size_of(item), form_of(data))


Members = list[tuple[Any, Feed]]
Call = Callable[[list[Feed], int], Any]


def run_groups(members: Members, call: Call, backend: TensorBackend) -> None:
    """Call the program once for each group of requests that fit together; `backend` gives each request its rows."""
    groups: dict[tuple[Any, ...], Members] = {}
    for item, feed in members:
        key = (feed.form, *((tensor.shape[1:], tensor.dtype) for tensor in feed.tensors))
        groups.setdefault(key, []).append((item, feed))
    for group in groups.values():
        _run([item for item, _ in group], [feed for _, feed in group], [feed.rows for _, feed in group], call, backend)


def run_alike(items: list[Any], parts: list[torch.Tensor], rows: list[int], call: Call, backend: TensorBackend) -> None:
    """Call the program once for requests whose data are those tensors: one for each, or one of which each has rows."""
    feeds = [Feed([part], len(part), None) for part in parts]
    _run(items, feeds, rows, call, backend)


def _run(items: list[Any], feeds: list[Feed], rows: list[int], call: Call, backend: TensorBackend) -> None:
    total = sum(rows)
    before = versions(feeds[0].tensors)
    try:
        output = _checked(call(feeds, total))
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        if len(items) == 1:
            items[0].fail(without_frames(_told(error, feeds[0])))
        elif versions(feeds[0].tensors) == before:
            _run_singly(items, feeds, rows, call, backend)
        else:
            _fail_as_changed(items, first_line(error))
        return
    if len(items) == 1:
        backend.give(items[0], output)
    elif any(tensor.ndim == 0 or tensor.shape[0] != total for tensor in flat(output)):
        # An output is not per row: it cannot be told whose is what.
        if versions(feeds[0].tensors) == before:
            _run_singly(items, feeds, rows, call, backend)
        else:
            _fail_as_changed(items, "it gave an output that is not per row")
    elif isinstance(output, torch.Tensor):
        backend.give_rows(items, output, rows)
    else:
        # One call for all: each releases Python's lock, which many callers wait for.
        parts = each_tensor(output, lambda tensor: tensor.split(rows))
        for index, item in enumerate(items):
            backend.give(item, _each_part(parts, index))


def _run_singly(items: list[Any], feeds: list[Feed], rows: list[int], call: Call, backend: TensorBackend) -> None:
    """Run each by itself: those that a failed run was not the fault of get their answer."""
    if len(feeds) < len(items):  # the feed is that of all
        feeds = [Feed([part], len(part), None) for part in feeds[0].tensors[0].split(rows)]
    for item, feed in zip(items, feeds, strict=True):
        _run([item], [feed], [feed.rows], call, backend)


def versions(tensors: list[torch.Tensor]) -> list[int]:
    """Return what changes when somebody writes to one of these tensors, or to another over the same memory."""
    return [0 if tensor.is_inference() else tensor._version for tensor in tensors]


def _fail_as_changed(items: list[Any], why: str) -> None:
    for item in items:
        item.fail(
            hami.RequestError(
                f"TorchModel: the model failed on a batch ({why}), whose requests cannot run alone: it has written to "
                "its input, for the first time. From now on it gets copies; begin its forward with a copy"
            )
        )


def _told(error: Exception, feed: Feed) -> hami.Error:
    if isinstance(error, hami.Error):
        return error
    given = ", ".join(map(show, feed.tensors))
    failure = hami.RequestError(f"TorchModel: the model failed on {given}: {first_line(error)}")
    failure.__cause__ = error
    return failure


def _each_part(parts: Any, index: int) -> Any:
    """Return part `index` of each tensor that was split, in the form that they came in."""
    if isinstance(parts, dict):
        return {name: part[index] for name, part in parts.items()}
    return [part[index] for part in parts]


def _checked(output: Any) -> Any:
    """Refuse an output that holds anything but tensors."""
    parts = output.values() if isinstance(output, dict) else output if isinstance(output, list) else [output]
    for part in parts:
        if not isinstance(part, torch.Tensor):
            raise hami.RequestError(
                f"TorchModel: a model gives a tensor, a list or a dict of them; this one gave {type(part).__name__}"
            )
    return output
