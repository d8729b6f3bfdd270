"""`hami.to_json`: results as values that JSON has."""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def to_json(value: Any, default: Callable[[Any], Any] = str) -> Any:
    """Return a result as what JSON has, for `json.dumps` or the handler of a web framework.

    >>> hami.to_json({"score": float("nan"), "box": (1, 2.5), "raw": b"ab"})
    {'score': None, 'box': [1, 2.5], 'raw': {'base64': 'YWI='}}

    Arrays and tensors of any package become nested lists, and bytes their base64. JSON has no NaN and no infinities:
    NaN is None, and infinities are the texts "Infinity" and "-Infinity". The keys of dicts become text, except None
    and ints, and a set is a sorted list.

    Args:
        value: A request, its `result`, or any other value.
        default: Called with a value of another class, and returns what JSON has for it.

    Raises:
        RecursionError: The value contains itself.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {
            key if key is None or isinstance(key, int) else str(key): to_json(item, default)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [to_json(item, default) for item in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        import base64

        return {"base64": base64.b64encode(value).decode("ascii")}
    if hasattr(value, "tolist"):
        listed = value.tolist()
        if type(listed) is type(value):  # numpy.longdouble, which Python has not
            listed = float(value)
        return to_json(listed, default)
    if isinstance(value, (set, frozenset)):
        return [to_json(item, default) for item in sorted(value, key=str)]
    if hasattr(value, "__dlpack__"):
        from hami._runtime.tensors import to_numpy

        return to_json(to_numpy(value).tolist(), default)
    return default(value)
