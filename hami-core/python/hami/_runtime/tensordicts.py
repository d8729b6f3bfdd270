"""Requests that are `tensordict.TensorDict`s. Imported only where the program has imported tensordict."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from hami._core import Tensor
from hami._errors import DataTypeError


class TensorDictRequest(dict[str, Any]):
    """The keys of a TensorDict. What the pipe writes at the end of the request is written into the TensorDict too."""

    def __init__(self, source: Any) -> None:
        if "result" in source.keys():  # noqa: SIM118 (a TensorDict iterates over its samples)
            source.del_("result")
        super().__init__(source.to_dict())
        self._source = source

    def __setitem__(self, name: str, value: Any) -> None:
        try:
            entry = _entry(value)
            if entry is None:
                self._source.set_non_tensor(name, value)
            else:
                self._source.set(name, entry)
        except Exception as error:
            batch_size = list(self._source.batch_size)
            raise DataTypeError(
                f'"{name}" cannot be set in a TensorDict of batch_size {batch_size}: {error}'
            ) from error
        super().__setitem__(name, value)


def adopt(requests: Any) -> Any:
    """Return requests that have a TensorDict among them with a dict in its place; None if there is none."""
    if isinstance(requests, TensorDictBase):
        return TensorDictRequest(requests)
    if not isinstance(requests, list) or not any(isinstance(request, TensorDictBase) for request in requests):
        return None
    made: dict[int, TensorDictRequest] = {}  # one for each TensorDict, so that one that is passed twice is found
    return [
        made.setdefault(id(request), TensorDictRequest(request)) if isinstance(request, TensorDictBase) else request
        for request in requests
    ]


def _entry(value: Any) -> Any:
    """Return a value as what a TensorDict keeps as a tensor; None if it is not a tensor."""
    if isinstance(value, (torch.Tensor, TensorDictBase)):
        return value
    if isinstance(value, Tensor):
        return torch.utils.dlpack.from_dlpack(value)
    is_number = isinstance(value, (bool, int, float))
    return torch.as_tensor(value) if is_number or type(value).__module__ == "numpy" else None
