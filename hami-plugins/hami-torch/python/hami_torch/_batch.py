"""Runs a batch of requests through a program: those of equal shapes together, a failing one without its neighbours."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import hami

from hami_torch._program import first_line
from hami_torch._rows import rows_of, size_of
from hami_torch._tensor import as_tensor, data_of, each_tensor, flat, form_of, named_parts, show
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
Give = Callable[[Any, Any], None]


def run_groups(members: Members, call: Call, give: Give) -> None:
    """Call the program once for each group of requests that fit together, and give each request its rows."""
    if len(members) == 1:
        _run_group(members, call, give)
        return
    groups: dict[tuple[Any, ...], Members] = {}
    for item, feed in members:
        key = (feed.form, *((tensor.shape[1:], tensor.dtype) for tensor in feed.tensors))
        groups.setdefault(key, []).append((item, feed))
    for group in groups.values():
        _run_group(group, call, give)


def _run_group(members: Members, call: Call, give: Give) -> None:
    rows = sum(feed.rows for _, feed in members)
    try:
        output = _formed(call([feed for _, feed in members], rows))
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        traceback.clear_frames(error.__traceback__)  # whoever keeps the exception does not keep the tensors
        _without(members, error, call, give)
        return
    if len(members) == 1:
        give(members[0][0], output)
        return
    if any(tensor.ndim == 0 or tensor.shape[0] != rows for tensor in flat(output)):
        _singly(members, call, give)  # an output is not per row: it cannot be told whose is what
        return
    # One call for all: each releases Python's lock, which many callers wait for.
    parts = each_tensor(output, lambda tensor: tensor.split([feed.rows for _, feed in members]))
    for index, (item, _) in enumerate(members):
        give(item, each_part(parts, index))


def each_part(parts: Any, index: int) -> Any:
    """Return part `index` of each tensor that was split, in the form that they came in."""
    if isinstance(parts, dict):
        return {name: part[index] for name, part in parts.items()}
    return [part[index] for part in parts] if isinstance(parts, list) else parts[index]


def _without(members: Members, error: Exception, call: Call, give: Give) -> None:
    """Answer those that a failed run was not the fault of."""
    if len(members) > 1:
        _singly(members, call, give)
        return
    ((item, feed),) = members
    if isinstance(error, hami.Error):
        item.fail(error)
        return
    given = ", ".join(map(show, feed.tensors))
    failure = hami.RequestError(f"TorchModel: the model failed on {given}: {first_line(error)}")
    failure.__cause__ = error
    item.fail(failure)


def _singly(members: Members, call: Call, give: Give) -> None:
    for member in members:
        _run_group([member], call, give)


def _formed(output: Any) -> Any:
    """Check that the output is tensors in a form that can be given on; a subclass of dict becomes a dict."""
    if isinstance(output, torch.Tensor):
        return output
    parts = list(output.values()) if isinstance(output, Mapping) else output
    parts = list(parts) if isinstance(parts, (list, tuple)) else [parts]
    for part in parts:
        if not isinstance(part, torch.Tensor):
            raise hami.RequestError(
                f"TorchModel: a model gives a tensor, a list or a dict of them; this one gave {type(part).__name__}"
            )
    return each_tensor(output, lambda tensor: tensor)
