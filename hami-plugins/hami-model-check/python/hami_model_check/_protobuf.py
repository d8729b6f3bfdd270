"""Reads the fields of a protobuf message from its wire format, without a schema and without the package protobuf."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator

Data = bytes | mmap.mmap

_VARINT, _FIXED_64, _LENGTH_DELIMITED, _FIXED_32 = 0, 1, 2, 5  # wire types


def _tags(wire_type: int) -> bytes:
    """Return the tags of one byte with this wire type, as members of a regular expression's set."""
    return b"".join(re.escape(bytes([number << 3 | wire_type])) for number in range(1, 16))


# Some fields that are not length-delimited. Attributes can have millions of numbers, each a field of its own. The
# number of repetitions is limited because the module re needs memory for each of them.
_NUMBERS = re.compile(
    rb"(?:[%b][\x80-\xff]{0,9}[\x00-\x7f]|[%b].{4}|[%b].{8}){1,1000}"
    % (_tags(_VARINT), _tags(_FIXED_32), _tags(_FIXED_64)),
    re.DOTALL,
)


class Reader:
    """Reads messages, and counts what it yields, so that a file of tiny fields cannot keep it busy.

    Args:
        data: the outermost message.
        max_fields: largest number of fields to yield.
    """

    def __init__(self, data: Data, max_fields: int) -> None:
        self.data = data
        self._fields_left = max_fields

    def fields(self, at: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield number, begin and end of each length-delimited field of a message, and skip its numbers.

        Raises:
            ValueError: the data are not valid protobuf.
            OverflowError: `max_fields` is exceeded.
        """
        data = self.data
        while at < end:
            numbers = _NUMBERS.match(data, at, end)
            if numbers:
                at = numbers.end()
                continue
            tag, at = (data[at], at + 1) if data[at] < 0x80 else self._varint(at, end)
            if tag & 7 != _LENGTH_DELIMITED:
                at = self._skip(tag & 7, at, end)
                continue
            if at < end and data[at] < 0x80:  # most fields are short
                length, at = data[at], at + 1
            else:
                length, at = self._varint(at, end)
            if length > end - at:
                raise ValueError("a field is longer than its message")
            self._count()
            yield tag >> 3, at, at + length
            at += length

    def numbers(self, at: int, end: int, *wanted: int) -> Iterator[tuple[int, int]]:
        """Yield number and value of the varint fields of a message that are `wanted`, packed ones included.

        Raises:
            ValueError, OverflowError: as `fields`.
        """
        while at < end:
            self._count()
            tag, at = self._varint(at, end)
            number, wire_type = tag >> 3, tag & 7
            if number not in wanted or wire_type not in (_VARINT, _LENGTH_DELIMITED):
                at = self._skip(wire_type, at, end)
            elif wire_type == _VARINT:
                value, at = self._varint(at, end)
                yield number, value
            else:
                length, at = self._varint(at, end)
                stop = min(at + length, end)
                while at < stop:
                    self._count()
                    value, at = self._varint(at, stop)
                    yield number, value

    def every(self, at: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield number and value of each varint of a message, and number, begin and end of each length-delimited field.

        A varint is yielded as (-number, value, 0): no field has a negative number. Other fields are skipped.

        Raises:
            ValueError, OverflowError: as `fields`.
        """
        data = self.data
        while at < end:
            self._count()
            tag, at = (data[at], at + 1) if data[at] < 0x80 else self._varint(at, end)
            number, wire_type = tag >> 3, tag & 7
            if wire_type == _LENGTH_DELIMITED:
                if at < end and data[at] < 0x80:  # most fields are short
                    length, at = data[at], at + 1
                else:
                    length, at = self._varint(at, end)
                if length > end - at:
                    raise ValueError("a field is longer than its message")
                yield number, at, at + length
                at += length
            elif wire_type == _VARINT:
                value, at = self._varint(at, end)
                yield -number, value, 0
            else:
                at = self._skip(wire_type, at, end)

    def _count(self) -> None:
        self._fields_left -= 1
        if self._fields_left < 0:
            raise OverflowError

    def _skip(self, wire_type: int, at: int, end: int) -> int:
        if wire_type == _VARINT:
            return self._varint(at, end)[1]
        if wire_type == _LENGTH_DELIMITED:
            length, at = self._varint(at, end)
        elif wire_type in (_FIXED_32, _FIXED_64):
            length = 4 if wire_type == _FIXED_32 else 8
        else:
            raise ValueError(f"wire type {wire_type} is not used by ONNX")
        if length > end - at:
            raise ValueError("a field is longer than its message")
        return at + length

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        data = self.data
        value = shift = 0
        while at < end and shift < 64:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
        raise ValueError("a number does not end")
