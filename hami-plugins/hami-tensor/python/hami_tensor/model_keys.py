"""ModelKeys: the keys of a request that hold the inputs and outputs of a model, for engines in Python.

They are `data` and `result`, or keys by the names of the model. The header `hami/model_keys.hpp` has the same rules for
native engines.

>>> from hami_tensor.model_keys import ModelKeys
>>> ModelKeys("AcmeTensor", ["ids", "mask"]).data_of({"ids": [1, 2], "mask": [1, 1]})
{'ids': [1, 2], 'mask': [1, 1]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import hami

RESERVED = {  # keys that mean something else to the core: no output is set under these names
    *("data", "result", "node_name", "event", "request_size", "req_id", "context", "state", "finish", "priority"),
    *("deadline", "timeout", "parts"),
}


class ModelKeys:
    """Where the inputs of a model are in its requests.

    Args:
        owner: Names the backend in messages.
        required: The names of the inputs; None: they are unknown, and `chosen` are all of them.
        optional: The names of inputs that a request may leave out.
        chosen: The parameter `inputs` of the backend: all inputs are read from the keys of these names. Empty: a
            request has all inputs in `data`, or else each in the key of its name.

    Attributes:
        owner, chosen: as given.

    Raises:
        hami.ConfigError: `chosen` has another name than those of the inputs, or lacks a required one.
    """

    def __init__(
        self, owner: str, required: Sequence[str] | None, optional: Iterable[str] = (), chosen: Sequence[str] = ()
    ) -> None:
        known = list(chosen if required is None else required)
        self.owner = owner
        self.chosen = list(chosen)
        self._required = known
        self._are_known = required is not None or bool(chosen)
        self._optional = [name for name in optional if not chosen or name in chosen]
        self._has_data_input = len(known) > 1 and "data" in known  # `data` may be this input or all of them
        if chosen and not set(known) <= set(chosen) <= {*known, *self._optional}:
            may = f", and may name {_shown(optional)}" if optional else ""
            raise hami.ConfigError(
                f'{owner}: "inputs" must name all inputs of the model, {_shown(known)}{may}; got {_shown(chosen)}'
            )

    @property
    def reads_only_data(self) -> bool:
        """Whether `data`, if a request has it, contains all inputs."""
        return not self.chosen and not self._has_data_input

    def data_of(self, request: Mapping[str, Any] | Any) -> Any:
        """Return `data`, or a dict of the inputs by name.

        Raises:
            hami.RequestError: The request has neither; the message names the keys that are missing.
        """
        missing = [] if self.reads_only_data and "data" in request else self._missing_in(request)
        if not self.chosen and "data" in request:
            data = request["data"]
            if not self._has_data_input or missing or isinstance(data, Mapping):
                return data
        if missing or not self._are_known:
            raise hami.RequestError(
                f"{self.owner}: {self._lack(missing)}; its keys are {_shown(sorted(request.keys()))}"
            )
        names = [*self._required, *(name for name in self._optional if name in request)]
        return {name: request[name] for name in names}

    def _missing_in(self, request: Any) -> list[str]:
        return [name for name in self._required if name not in request]

    def _lack(self, missing: list[str]) -> str:
        if not self._are_known:
            return 'the request has no key "data"'
        if not self.chosen and len(missing) == len(self._required):
            return f'the request has no key "data", and none of the model\'s inputs {_shown(self._required)}'
        return f"the model has the inputs {_shown(self._required)}, of which the request lacks {_shown(missing)}"


def give_result(request: Any, result: Any) -> None:
    """Set `result`: the value of the only output, or a dict by output name, whose entries also become keys.

    Outputs with the name of a reserved key are only in `result`.
    """
    request["result"] = result
    if isinstance(result, Mapping):
        for name, value in result.items():
            if name and isinstance(name, str) and name not in RESERVED:
                request[name] = value


def _shown(names: Iterable[str]) -> str:
    return json.dumps(list(names), ensure_ascii=False)
