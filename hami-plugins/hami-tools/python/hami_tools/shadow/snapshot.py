"""Copies what one pipeline gets or answers, so that nothing that another one writes into it is seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import hami

_UNCHANGING = frozenset((type(None), bool, int, float, complex, str, bytes))


def snapshot(value: Any) -> Any:
    """Return a value whose arrays, lists and dicts are copies. Other objects are shared.

    A hami.Tensor in CPU memory becomes a numpy array.
    """
    kind = type(value)
    if kind is dict:
        return dict(zip(value, _snapshots(value.values()), strict=True))
    if kind is list or kind is tuple:
        return kind(_snapshots(value))
    if kind is bytearray:
        return bytearray(value)
    if kind is memoryview:
        return memoryview(bytearray(value.tobytes())).cast(value.format, value.shape)
    if kind is hami.Tensor:
        return _of_tensor(value)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        copy = getattr(value, "clone", None) or getattr(value, "copy", None)  # torch; numpy and those like it
        return copy() if copy else value
    return value


def _snapshots(values: Iterable[Any]) -> Iterable[Any]:
    return values if set(map(type, values)) <= _UNCHANGING else map(snapshot, values)


def _of_tensor(value: hami.Tensor) -> Any:
    try:
        return hami.to_numpy(value).copy()
    except hami.DataTypeError:  # in device memory, or of a type that numpy has not
        return value
