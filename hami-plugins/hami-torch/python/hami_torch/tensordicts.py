"""Requests that are read from a `tensordict.TensorDict` and written back into it. Needs the package tensordict."""

from __future__ import annotations

from typing import Any

import hami
from tensordict import TensorDictBase

from hami_torch._torch import torch

__all__ = ["TensorDictRequest"]


class TensorDictRequest(dict[str, Any]):
    """A request with the keys of a TensorDict; what the pipe sets at the end of the request is set there too.

    >>> from tensordict import TensorDict
    >>> sample = TensorDict({"data": torch.zeros(2)}, batch_size=[])
    >>> with hami.pipe("Identity") as pipe:
    ...     request = pipe(TensorDictRequest(sample))
    >>> sample["result"].tolist()
    [0.0, 0.0]

    It is one request, also if the TensorDict has a batch size. Nested TensorDicts become dicts.

    Args:
        source: The TensorDict. A `result` of an earlier request is removed from it.

    Raises:
        hami.DataTypeError: The pipe sets a tensor whose shape does not begin with the batch size.
    """

    def __init__(self, source: TensorDictBase) -> None:
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
            raise hami.DataTypeError(
                f'"{name}" cannot be set in a TensorDict of batch_size {batch_size}: {error}'
            ) from error
        super().__setitem__(name, value)


def _entry(value: Any) -> Any:
    """Return a value as what a TensorDict keeps as a tensor; None if it is not a tensor."""
    if isinstance(value, (torch.Tensor, TensorDictBase)):
        return value
    if isinstance(value, hami.Tensor):
        return torch.utils.dlpack.from_dlpack(value)
    is_number = isinstance(value, (bool, int, float))
    return torch.as_tensor(value) if is_number or type(value).__module__ == "numpy" else None
