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

Form = int | tuple[str, ...] | None  # how the tensors of a request came: as form_of says


class Feed(NamedTuple):
    """One request, ready to run."""

    tensors: list[torch.Tensor]
    rows: int
    form: Form


class Inputs(NamedTuple):
    """What a program is called with: for each of its inputs the parts to gather, one of all or one of each request."""

    columns: list[list[torch.Tensor]]
    form: Form


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
Call = Callable[[Inputs, int], Any]


def run_groups(members: Members, call: Call, backend: TensorBackend) -> None:
    """Call the program once for each group of requests that fit together; `backend` gives each request its rows."""
    groups: dict[tuple[Any, ...], Members] = {}
    for item, feed in members:
        key = (feed.form, *((tensor.shape[1:], tensor.dtype) for tensor in feed.tensors))
        groups.setdefault(key, []).append((item, feed))
    for (form, *_), group in groups.items():
        columns = [list(parts) for parts in zip(*(feed.tensors for _, feed in group), strict=True)]
        items, rows = [item for item, _ in group], [feed.rows for _, feed in group]
        run_together(items, Inputs(columns, form), rows, call, backend)


def run_together(items: list[Any], inputs: Inputs, rows: list[int], call: Call, backend: TensorBackend) -> None:
    """Call the program once for requests that fit together, of so many rows each."""
    total = sum(rows)
    firsts = [parts[0] for parts in inputs.columns]
    before = versions(firsts)
    try:
        output = _checked(call(inputs, total))
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        if len(items) == 1:
            items[0].fail(without_frames(_told(error, firsts)))
        elif versions(firsts) == before:
            _run_singly(items, inputs, rows, call, backend)
        else:
            _fail_as_changed(items, first_line(error))
        return
    if len(items) == 1:
        backend.give(items[0], output)
    elif any(tensor.ndim == 0 or tensor.shape[0] != total for tensor in flat(output)):
        # An output is not per row: it cannot be told whose is what.
        if versions(firsts) == before:
            _run_singly(items, inputs, rows, call, backend)
        else:
            _fail_as_changed(items, "it gave an output that is not per row")
    elif isinstance(output, torch.Tensor):
        backend.give_rows(items, output, rows)
    else:
        # One call for all: each releases Python's lock, which many callers wait for.
        parts = each_tensor(output, lambda tensor: tensor.split(rows))
        for index, item in enumerate(items):
            backend.give(item, _each_part(parts, index))


def _run_singly(items: list[Any], inputs: Inputs, rows: list[int], call: Call, backend: TensorBackend) -> None:
    """Run each by itself: those that a failed run was not the fault of get their answer."""
    columns = [parts if len(parts) == len(items) else parts[0].split(rows) for parts in inputs.columns]
    for item, parts, count in zip(items, zip(*columns, strict=True), rows, strict=True):
        run_together([item], Inputs([[part] for part in parts], inputs.form), [count], call, backend)


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


def _told(error: Exception, tensors: list[torch.Tensor]) -> hami.Error:
    if isinstance(error, hami.Error):
        return error
    given = ", ".join(map(show, tensors))
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
