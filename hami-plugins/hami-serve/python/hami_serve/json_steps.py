"""Reads and writes long JSON in short steps, because a step of CPython keeps all other threads from running."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import hami
import numpy as np

STEP = 1 << 14  # characters of a step, which takes less than a millisecond
CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": -float("inf")}  # what Python writes for JSON
MOST_BRACKETS = 1 << 20  # "[" and "{" of a text: `{},` has 3 bytes, and about 70 as a value, and takes a step of Python
BRACKETS = re.compile(r'[\[\]{}"]')
CHARACTERS = re.compile(r'(?:[^"\\\x00-\x1f]+|\\u[0-9a-fA-F]{4}|\\["\\/bfnrt])*')  # of a text
ESCAPE = 6  # characters of "\\u1234"
SEARCHED = 1 << 18  # characters in a step
MANY = 1 << 12  # elements, and 16 characters of text each: JSON of more is made on another thread, in steps
BASE64_STEP = 3 << 12  # bytes, whose base64 needs no padding
SPACE = re.compile(r"[ \t\n\r]*")
MINUS_ZERO = -0.0
DECODER = json.JSONDecoder(parse_constant=CONSTANTS.__getitem__)  # so that Infinity differs from a number out of range
SIGNED = json.JSONDecoder(  # programs in Go and C++ write -0 for a float
    parse_constant=CONSTANTS.__getitem__, parse_int=lambda text: MINUS_ZERO if text == "-0" else int(text)
)
encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def pause() -> None:
    """Let another thread run, such as the loop of the server."""
    time.sleep(0)


def release(values: list[Any], count: int = STEP) -> None:
    """Empty a long list."""
    while values:
        del values[-count:]
        pause()


def decode(text: str) -> Any:
    """Return the value of JSON text, in which -0 is MINUS_ZERO.

    Raises:
        ValueError: The text is not JSON, or it has more than MOST_BRACKETS lists and objects.
        RecursionError: It is nested too deep.
    """
    decoder = SIGNED if _has_minus_zero(text) else DECODER
    if len(text) <= STEP:
        return decoder.decode(text)
    if len(text) > MOST_BRACKETS and _brackets(text) > MOST_BRACKETS:
        raise ValueError(f"it has more than {MOST_BRACKETS} lists and objects; send the tensor as binary data")
    return _Reader(text, decoder).read()


def _brackets(text: str) -> int:
    """Return the number of "[" and "{" in a text, also of those in strings."""
    found = 0
    for start in range(0, len(text), SEARCHED):
        found += text.count("[", start, start + SEARCHED) + text.count("{", start, start + SEARCHED)
        pause()
    return found


def _has_minus_zero(text: str) -> bool:
    """Return whether a text may have -0, which SIGNED reads at twice the cost of DECODER."""
    for start in range(0, len(text), SEARCHED):
        if text.find("-0", start, start + SEARCHED + 1) >= 0:
            return True
        if start:
            pause()
    return False


class _Reader:
    def __init__(self, text: str, decoder: json.JSONDecoder) -> None:
        self._text = text
        self._decoder = decoder
        self._position = 0
        self._next_pause = STEP

    def read(self) -> Any:
        self._skip_space()
        value = self._value()
        self._skip_space()
        if self._position != len(self._text):
            raise self._error("Extra data")
        return value

    def _error(self, text: str, position: int | None = None) -> json.JSONDecodeError:
        return json.JSONDecodeError(text, self._text, self._position if position is None else position)

    def _skip_space(self) -> None:
        found = SPACE.match(self._text, self._position)
        assert found is not None  # it may be empty
        self._position = found.end()

    def _skip(self, expected: str) -> bool:
        """Skip a character and the space around it, if it is there."""
        self._skip_space()
        if not self._text.startswith(expected, self._position):
            return False
        self._position += 1
        self._skip_space()
        return True

    def _value(self) -> Any:
        if self._position >= self._next_pause:
            self._next_pause = self._position + STEP
            pause()
        if not self._is_short():
            if self._skip("["):
                return self._list()
            if self._skip("{"):
                return self._dict()
            return self._long_text()
        value, self._position = self._decoder.raw_decode(self._text, self._position)
        return value

    def _is_short(self) -> bool:
        """Return whether the value is one step: it is neither a list, an object nor a text, or one that ends soon."""
        position = self._position
        first = self._text[position : position + 1]
        if first not in ("[", "{", '"') or len(self._text) - position <= STEP:
            return True
        if first == '"':
            end = self._text.find('"', position + 1, position + STEP)
            if end > 0 and self._text[end - 1] != "\\":
                return True
            end = CHARACTERS.match(self._text, position + 1, position + STEP).end()  # type: ignore[union-attr]
            return self._text[end] == '"'
        found = BRACKETS.search(self._text, position + 1, position + STEP)
        return found is not None and found[0] in "]}"

    def _long_text(self) -> str:
        parts: list[str] = []
        start = self._position + 1
        while (end := CHARACTERS.match(self._text, start, start + STEP).end()) > start:  # type: ignore[union-attr]
            part: str = DECODER.decode(f'"{self._text[start:end]}"')
            if "\ud800" <= part[-1] <= "\udbff" and self._text[end - 1] != part[-1] and len(part) > 1:
                part, end = part[:-1], end - ESCAPE  # its other half follows
            parts.append(part)
            pause()
            start = end
        if not self._text.startswith('"', start):
            try:
                DECODER.raw_decode('"' + self._text[start : start + STEP])
            except json.JSONDecodeError as error:
                is_open = error.msg.startswith("Unterminated")
                raise self._error(error.msg, self._position if is_open else start - 1 + error.pos) from None
        self._position = start + 1
        return "".join(parts)

    def _list(self) -> list[Any]:
        values: list[Any] = []
        try:
            if self._skip("]"):
                return values
            while True:
                if numbers := self._numbers():
                    values += numbers
                    continue
                values.append(self._value())
                if self._skip(","):
                    continue
                if self._skip("]"):
                    return values
                raise self._error("Expecting ',' delimiter")
        except BaseException:
            release(values)
            raise

    def _numbers(self) -> list[Any]:
        """Return the numbers before the last comma of a step, and skip it."""
        position = self._position
        found = BRACKETS.search(self._text, position, position + STEP)
        end = self._text.rfind(",", position, found.start() if found else position + STEP)
        if end <= position:
            return []
        try:
            numbers: list[Any] = self._decoder.decode(f"[{self._text[position:end]}]")
        except json.JSONDecodeError as error:
            raise self._error(error.msg, position + error.pos - 1) from None
        self._position = end
        self._skip(",")
        pause()
        return numbers

    def _dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if self._skip("}"):
            return values
        while True:
            if not self._text.startswith('"', self._position):
                raise self._error("Expecting property name enclosed in double quotes")
            key = self._value()
            if not self._skip(":"):
                raise self._error("Expecting ':' delimiter")
            values[key] = self._value()
            if self._skip(","):
                continue
            if self._skip("}"):
                return values
            raise self._error("Expecting ',' delimiter")


def written(value: Any) -> bytes:
    """Return the JSON of a value in UTF-8. Halves of surrogate pairs, which UTF-8 does not have, are escaped."""
    return encode(value).encode("utf-8", "backslashreplace")


def is_long(value: Any) -> bool:
    """Return whether the JSON of a value may be long."""
    waiting, seen = [value], 0
    while waiting and seen <= MANY:
        each = waiting.pop()
        seen += 1
        if isinstance(each, (str, bytes, bytearray, memoryview)):
            seen += len(each) >> 4
        elif isinstance(each, dict):
            waiting += list(each.values())[:MANY]
        elif isinstance(each, (list, tuple)):
            waiting += each[: MANY + 1]
        else:
            seen += getattr(each, "size", 0) if isinstance(getattr(each, "size", 0), int) else MANY
    return seen > MANY


def write(value: Any, default: Callable[[Any], Any] = str) -> bytes:
    """Return the JSON of a value in UTF-8, as `hami.to_json` makes it, in steps.

    Raises:
        RecursionError: The value contains itself.
    """
    return b"".join(_parts(value, default))


def _parts(value: Any, default: Callable[[Any], Any]) -> Iterator[bytes]:
    if not is_long(value):
        yield written(hami.to_json(value, default))
        pause()
    elif isinstance(value, str):
        yield _encode_text(value)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        yield b'{"base64":"'
        data = memoryview(value).cast("B")
        for start in range(0, len(data), BASE64_STEP):
            yield base64.b64encode(data[start : start + BASE64_STEP])
            pause()
        yield b'"}'
    elif isinstance(value, dict):
        for index, (key, item) in enumerate(value.items()):
            yield (b"," if index else b"{") + written(hami.to_json({key: 0}))[1:-2]
            yield from _parts(item, default)
        yield b"}"
    elif isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim):
        part = max(1, MANY // 2)  # of numbers, which are then one step
        for start in range(0, len(value), part):
            yield b"," if start else b"["
            yield from _elements(value[start : start + part], default)
        yield b"]"
    else:
        plain = hami.to_json(value, default)
        yield from _parts(plain, default) if isinstance(plain, (list, dict, str)) else [written(plain)]


def _elements(values: Any, default: Callable[[Any], Any]) -> Iterator[bytes]:
    """Return the elements of a list or an array, which has at most MANY."""
    if len(values) == 1:
        yield from _parts(values[0], default)
    elif is_long(values):
        middle = len(values) // 2
        yield from _elements(values[:middle], default)
        yield b","
        yield from _elements(values[middle:], default)
    else:
        yield written(hami.to_json(values, default))[1:-1]
        pause()


def encode_steps(values: Iterable[list[Any]]) -> bytes:
    """Return the JSON of a list that comes in parts."""
    found: list[bytes] = []
    for part in values:
        if any(isinstance(each, str) and len(each) > STEP for each in part):
            found += map(_encode_text, part)
        else:
            found.append(_inner(part))
        pause()
    return b"[" + b",".join(filter(None, found)) + b"]"


def _encode_text(text: str) -> bytes:
    parts = []
    for start in range(0, len(text), STEP):
        parts.append(_inner(text[start : start + STEP]))
        pause()
    return b'"' + b"".join(parts) + b'"'


def _inner(value: list[Any] | str) -> bytes:
    """Return the JSON of a list or a text without the first and the last character."""
    return written(value)[1:-1]
