"""Arrays in results of `hami run`: small ones are printed, large ones are described or written to files."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hami._cli.show import dtype_of, is_array, is_small, kind_of_array, short

FIRST = 8  # values of a larger array that are printed


class ArrayWriter:
    """Replaces the arrays of results by what is printed for them; writes the large ones if there is a folder."""

    def __init__(self, max_values: int, folder: Path | None) -> None:
        """`max_values` is the largest number of elements that is printed, and of bytes that are not written."""
        self._max_values = max_values
        self._write: Callable[..., Path] | None = None
        if folder is not None:
            from hami._plugins.manager import installed

            self._write = installed.hook_of_tools("hami_result_files", "--output")(folder=folder)

    def replace(self, request: dict[str, Any], label: str, *, json: bool) -> Any:
        """Return the result of a request without arrays; `label` names its input, and the files."""
        swap_colors = request.get("color") == "bgr"

        def replaced(value: Any, name: str) -> Any:
            if isinstance(value, (bytes, bytearray, memoryview)) and self._write and len(value) > self._max_values:
                path = self._write(bytes(value), name)
                return {"bytes": len(value), "file": str(path)} if json else f"{len(value)} bytes: {path}"
            if is_array(value):
                return self._array(value, name, json=json, swap_colors=swap_colors)
            return value

        return _map(request["result"], replaced, re.sub(r"[^\w.-]+", "_", Path(label).stem).strip("_-") or "result")

    def _array(self, value: Any, name: str, *, json: bool, swap_colors: bool) -> Any:
        if is_small(value, self._max_values):
            return value.tolist() if json else short(value.tolist())
        shape = [int(size) for size in value.shape]
        facts = {"dtype": dtype_of(value), "shape": shape}
        text = kind_of_array(value)
        if self._write is None:
            first = _first(value)
            if json:
                return {**facts, "first": first}
            more = ", …" if len(first) < math.prod(shape) else ""
            return f"{text}: {', '.join(map(short, first))}{more}" if first else text
        path = self._write(value, name, swap_colors=swap_colors)
        return {**facts, "file": str(path)} if json else f"{text}: {path}"


def _first(value: Any) -> list[Any]:
    """Return the first values of an array in row-major order; none if its package cannot say them."""
    try:
        if hasattr(value, "reshape"):
            return list(value.reshape(-1)[:FIRST].tolist())
        view = memoryview(value)
        return view.cast("B").cast(view.format)[:FIRST].tolist()  # type: ignore[call-overload, no-any-return]
    except Exception:  # an array of a package that does it in another way
        return []


def _map(value: Any, function: Callable[[Any, str], Any], name: str) -> Any:
    """Apply a function to everything in a result that is not a dict, list or tuple; `name` grows with the keys."""
    if isinstance(value, dict):
        return {
            key: _map(item, function, f"{name}.{re.sub(r'[^A-Za-z0-9_-]+', '_', str(key))}")
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_map(item, function, f"{name}.{index}") for index, item in enumerate(value)]
    return function(value, name)
