"""Reads long requests of gRPC in short steps, because protobuf reads a message in one step of CPython.

A request may have millions of elements in a field, or of fields. Its bytes are merged into a message in pieces that end
where a field or an element ends. The number of fields is limited, except of those that are elements of a tensor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from hami_serve.errors import BadRequest
from hami_serve.json_steps import STEP, pause

MAX_FIELDS = 1 << 13  # of a message, except tensor contents: for 1024 each of inputs, outputs, parameters, raw contents
MAX_NAME = 1 << 16  # bytes of a name: protobuf makes a new text for each use
MAX_VARINT = 10  # bytes
VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5  # wire types
SIZES = {FIXED64: 8, FIXED32: 4}
SHORT_ELEMENTS = re.compile(  # of tensor contents: varints, floats, doubles, and texts of at most 127 bytes
    rb"(?:[\x08\x10\x18\x20\x28][\x80-\xff]{0,9}[\x00-\x7f]|\x35.{4}|\x39.{8}|\x42(?:%b))+"
    % b"|".join(b"\\x%02x.{%d}" % (size, size) for size in range(128)),
    re.DOTALL,
)
CONTENTS = "InferTensorContents"
SIZE_OF = {FieldDescriptor.TYPE_FLOAT: 4, FieldDescriptor.TYPE_DOUBLE: 8}  # of packed elements; others are varints
Bytes = bytes | memoryview


def varint(data: Bytes, position: int) -> tuple[int, int]:
    """Return a number, and the position after it.

    Raises:
        DecodeError: It is not complete, or too long.
    """
    value = 0
    for shift, byte in enumerate(data[position : position + MAX_VARINT]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, position + shift + 1
    raise DecodeError("a number is not complete")


def fields(data: Bytes) -> Iterator[tuple[int, int, int, int]]:
    """Return the fields of a message: the key, and the positions of the field, of its content and after it.

    Raises:
        DecodeError: A field is not complete, or of a wire type that the protocol does not have.
        BadRequest: There are more than MAX_FIELDS.
    """
    position = found = 0
    while position < len(data):
        found += 1
        if found > MAX_FIELDS:
            raise BadRequest(f"a message has more than {MAX_FIELDS} fields; send the tensors as raw contents")
        start = position
        key, content = varint(data, position)
        kind = key & 7
        if kind == LENGTH_DELIMITED:
            size, content = varint(data, content)
            position = content + size
        elif kind == VARINT:
            _, position = varint(data, content)
        elif kind in SIZES:
            position = content + SIZES[kind]
        else:
            raise DecodeError(f"a field has the wire type {kind}")
        if position > len(data):
            raise DecodeError("a field is not complete")
        yield key, start, content, position


def merge(message: Any, data: memoryview) -> None:
    """Merge the bytes of a message into `message`.

    Raises:
        DecodeError: They are not those of such a message.
        BadRequest: It has more than MAX_FIELDS fields, or a very long name.
    """
    if message.DESCRIPTOR.name == CONTENTS:
        _merge_contents(message, data)
        return
    begin = 0  # of the fields that are not merged yet
    for key, start, content, end in fields(data):
        if start - begin >= STEP:
            begin = _merge_piece(message, data, begin, start)
        if end - start <= STEP or key & 7 != LENGTH_DELIMITED:
            continue
        field = message.DESCRIPTOR.fields_by_number.get(key >> 3)
        if field is not None and field.type == field.TYPE_STRING and end - content > MAX_NAME:
            raise BadRequest(f"the {field.name} of a tensor has {end - content} bytes; give at most {MAX_NAME}")
        if field is None or field.type == field.TYPE_STRING:
            continue  # a piece of its own, which is only copied
        begin = _merge_piece(message, data, begin, start)
        if field.type != field.TYPE_MESSAGE:
            _merge_packed(message, field, key, data[content:end])
        elif field.message_type.GetOptions().map_entry:
            _require_few(data[content:end])
            continue
        else:
            child = getattr(message, field.name)
            merge(child.add() if hasattr(child, "add") else child, data[content:end])
        begin = end
    _merge_piece(message, data, begin, len(data))


def _merge_piece(message: Any, data: memoryview, start: int, end: int) -> int:
    if start < end:
        message.MergeFromString(bytes(data[start:end]))
        pause()
    return end


def _require_few(entry: memoryview) -> None:
    """Check the fields of a long entry of a map, and of its value."""
    for key, start, content, end in fields(entry):
        if key & 7 == LENGTH_DELIMITED and end - start > STEP:
            try:
                for _ in fields(entry[content:end]):
                    pass
            except DecodeError:  # it is text, or protobuf says so
                continue


def _merge_contents(contents: Any, data: memoryview) -> None:
    """Merge the contents of a tensor, which may have a field for each element."""
    position = 0
    while position < len(data):
        if short := SHORT_ELEMENTS.match(data, position, position + STEP):
            position = _merge_piece(contents, data, position, short.end())
            continue
        key, start, content, end = next(fields(data[position:]))
        field = contents.DESCRIPTOR.fields_by_number.get(key >> 3)
        if key & 7 == LENGTH_DELIMITED and end - start > STEP and field is not None and field.type != field.TYPE_BYTES:
            _merge_packed(contents, field, key, data[position + content : position + end])
        else:
            _merge_piece(contents, data, position, position + end)
        position += end


def _merge_packed(message: Any, field: Any, key: int, data: memoryview) -> None:
    """Merge the elements of a packed field."""
    size = SIZE_OF.get(field.type)
    position = 0
    while position < len(data):
        end = min(position + STEP, len(data))  # STEP is a multiple of the sizes
        if size is None and end < len(data):
            while end > position and data[end - 1] >= 0x80:
                end -= 1
            if end <= position:
                raise DecodeError("a number is not complete")
        message.MergeFromString(encoded(key, end - position) + bytes(data[position:end]))
        pause()
        position = end


def encoded(key: int, size: int) -> bytes:
    """Return the beginning of a field whose content has `size` bytes."""
    found = bytearray([key])
    while size > 0x7F:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    found.append(size)
    return bytes(found)
