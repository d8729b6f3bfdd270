"""Formats values for people and as JSON: results of requests, and tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from hami._to_json import to_json

SMALL = 32  # elements; larger arrays are shown by type and shape


def lines_of(value: Any) -> list[str]:
    """Return the lines that show a result: text unchanged, records in columns, large arrays by type and shape."""
    if isinstance(value, str):
        return value.splitlines() or [""]
    if hasattr(value, "tolist") and not is_array(value):  # as to_json does
        return lines_of(value.tolist())
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, dict) for item in value):
            return _records(value)
        if any(isinstance(item, (str, list, tuple, dict)) or is_array(item) for item in value):
            return [line for item in value for line in lines_of(item)] if not is_flat(value) else [short(value)]
    if isinstance(value, dict):
        return _fields(value)
    return [short(value)]


def short(value: Any) -> str:
    """Return a value as text; only text in the value itself may contain line breaks."""
    if isinstance(value, float):
        return f"{value:.4g}" if value else "0"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"{len(value)} bytes"
    if is_array(value):
        return short(value.tolist()) if is_small(value, SMALL) else kind_of_array(value)
    if isinstance(value, (list, tuple)):
        if value and all(_is_point(item) for item in value):
            return " ".join(",".join(short(number) for number in item) for item in value)
        return f"[{', '.join(short(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {short(item)}' for key, item in value.items())}}}"
    return str(value)


def is_array(value: Any) -> bool:
    """Return whether a value is an array or a tensor of any package."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def is_small(array: Any, most: int) -> bool:
    """Return whether an array has at most so many elements, and can say them."""
    return math.prod(map(int, array.shape)) <= most and hasattr(array, "tolist")


def kind_of_array(array: Any) -> str:
    """Return the type and the shape of an array: "float32 array, shape 1x3"."""
    return f"{dtype_of(array)} array, shape {'x'.join(map(str, array.shape))}"


def dtype_of(array: Any) -> str:
    """Return the type of the elements of an array without the name of its package."""
    return str(array.dtype).removeprefix("torch.")


def is_flat(value: Sequence[Any]) -> bool:
    """Return whether a list contains only numbers and points."""
    return all(isinstance(item, (int, float)) or _is_point(item) for item in value)


def _is_point(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and all(isinstance(number, (int, float)) for number in value)
    )


def _records(records: Sequence[dict[str, Any]]) -> list[str]:
    """Return one row for each record. Columns of text are last, because the length of text varies."""
    names = list(dict.fromkeys(key for record in records for key in record))
    names.sort(key=lambda name: any(isinstance(record.get(name), str) for record in records))
    rows = [[_cell(record.get(name, "")) for name in names] for record in records]
    return aligned([[_cell(name) for name in names], *rows])  # keys may be numbers, as the classes of a model


def _cell(value: Any) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else short(value)
    return " ".join(text.split("\n"))


def _fields(fields: dict[Any, Any]) -> list[str]:
    shown = []
    for key, value in fields.items():
        lines = lines_of(value)
        if len(lines) == 1 and not isinstance(value, dict):
            shown.append(f"{key}: {lines[0]}")
        else:
            shown += [f"{key}:", *(f"  {line}" for line in lines)]
    return shown or ["{}"]


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return rows as lines, with columns at least two spaces apart."""
    table = list(rows)
    if not table:
        return []
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def json_of(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON that every parser accepts."""
    return json.dumps(to_json(value), indent=indent)
