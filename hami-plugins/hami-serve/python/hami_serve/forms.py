"""Forms with files (multipart/form-data), which are in memory already: a browser or `curl -F` sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from hami_serve.errors import BadRequest, short
from hami_serve.http_tensors import parse_value
from hami_serve.inference import MAX_TENSORS

STEP = 1 << 20  # bytes that are parsed at once
Body = bytes | bytearray | memoryview


class Field(str):
    """The text of a form, which may be that of a number."""

    __slots__ = ()


def parse_form(kind: str, body: Body) -> dict[str, Any]:
    """Return the parts by name: a file as bytes, JSON as its value, and other parts as a `Field`. Parts with the same
    name are a list.

    Args:
        kind: The content type, with its boundary.
        body: The bytes.
    """
    _, options = parse_options_header(kind)
    boundary = options.get(b"boundary")
    if not boundary:
        raise BadRequest("the Content-Type multipart/form-data has no boundary; let the client write this header")
    reader = _Reader()
    try:
        parser = MultipartParser(boundary, reader.callbacks())  # type: ignore[arg-type]
        for start in range(0, len(body), STEP):
            parser.write(bytes(body[start : start + STEP]))
        parser.finalize()
    except FormParserError as error:
        raise BadRequest(f"the body is not valid multipart/form-data: {short(str(error))}") from None
    if not reader.ended:
        raise BadRequest("the body of the form ends before its last boundary")
    return reader.values()


class _Reader:
    def __init__(self) -> None:
        self._parts: list[tuple[str, Any]] = []
        self._headers: dict[bytes, bytes] = {}
        self._name, self._value, self._data = bytearray(), bytearray(), bytearray()
        self.ended = False

    def callbacks(self) -> Mapping[str, Any]:
        def adds_to(kept: str) -> Any:
            return lambda data, start, end: getattr(self, kept).extend(memoryview(data)[start:end])

        return {
            "on_part_begin": self._begin,
            "on_header_field": adds_to("_name"),
            "on_header_value": adds_to("_value"),
            "on_header_end": self._end_header,
            "on_part_data": adds_to("_data"),
            "on_part_end": self._end,
            "on_end": self._end_all,
        }

    def _begin(self) -> None:
        if len(self._parts) == MAX_TENSORS:
            raise BadRequest(f"a form has at most {MAX_TENSORS} parts")
        self._headers, self._data = {}, bytearray()

    def _end_header(self) -> None:
        self._headers[bytes(self._name).lower()] = bytes(self._value)
        self._name, self._value = bytearray(), bytearray()

    def _end(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if not name:
            raise BadRequest("a part of the form has no name; the name is that of an input of the model")
        kind = self._headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        self._parts.append((name, _value_of(name, kind, bytes(self._data), is_file=b"filename" in options)))

    def _end_all(self) -> None:
        self.ended = True

    def values(self) -> dict[str, Any]:
        found: dict[str, list[Any]] = {}
        for name, value in self._parts:
            found.setdefault(name, []).append(value)
        return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _value_of(name: str, kind: bytes, data: bytes, *, is_file: bool) -> Any:
    if kind == b"application/json":
        return parse_value(data, f'part "{short(name)}"')
    if kind.startswith(b"text/") or (not is_file and not kind):
        try:
            return Field(data, "utf-8")
        except UnicodeDecodeError as error:
            raise BadRequest(f'part "{short(name)}" of the form is text, and not valid UTF-8: {error}') from None
    return data
