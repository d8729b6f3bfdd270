"""TIFF files: the entries of their first directory, and copies in which OpenCV leaves the stored pixels as they are."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

ORIENTATION, EXTRA_SAMPLES = 274, 338
_INTEGERS = {3: "H", 4: "I", 16: "Q"}  # by field type: SHORT, LONG, LONG8
_ASSOCIATED, _UNASSOCIATED = 1, 2  # kinds of an alpha channel: colours are stored multiplied by it, or not
_MAX_FIELDS = 65_535  # the largest number that a classic TIFF file can state


class Entry(NamedTuple):
    """A field of a directory."""

    tag: int
    field_type: int
    values: int
    at: int  # of its bytes in the file, where they fit into the entry: of the entry's own field
    room: int  # bytes in the entry itself


def byte_order(data: memoryview) -> str:
    """Return the byte order as the module struct writes it."""
    return "<" if data[0] == ord("I") else ">"


def entries(data: memoryview) -> Iterator[Entry]:
    """Yield the fields of the first directory.

    Raises:
        struct.error: the file ends early.
    """
    order = byte_order(data)
    big = struct.unpack_from(order + "H", data, 2)[0] == 43  # BigTIFF: 64-bit counts and offsets
    count_format, entry_format = (order + "Q", order + "HHQ") if big else (order + "H", order + "HHI")
    room = 8 if big else 4
    (at,) = struct.unpack_from(order + ("Q" if big else "I"), data, 8 if big else 4)
    (count,) = struct.unpack_from(count_format, data, at)
    at += struct.calcsize(count_format)
    for _ in range(min(count, _MAX_FIELDS)):
        tag, field_type, values = struct.unpack_from(entry_format, data, at)
        own = at + struct.calcsize(entry_format)
        data[own + room - 1]  # IndexError where the file ends inside the entry
        yield Entry(tag, field_type, values, own, room)
        at = own + room


def with_stored_pixels(data: memoryview, *, turn: bool) -> bytes | memoryview:
    """Return a file of which OpenCV returns the colours that are stored.

    Of a file with an alpha channel, OpenCV returns the colours multiplied by alpha. It also turns the picture as the
    file's orientation says, in any mode; with `turn` = false, the copy has the normal orientation.
    """
    order = byte_order(data)
    changes: list[tuple[int, str, int]] = []
    for entry in entries(data):
        kind = _INTEGERS.get(entry.field_type, "")
        if entry.tag == ORIENTATION and kind and entry.values == 1 and not turn:
            changes.append((entry.at, order + kind, 1))
        elif entry.tag == EXTRA_SAMPLES and entry.field_type == 3 and entry.values:
            at = entry.at
            if 2 * entry.values > entry.room:
                (at,) = struct.unpack_from(order + ("Q" if entry.room == 8 else "I"), data, entry.at)
            if struct.unpack_from(order + "H", data, at)[0] == _UNASSOCIATED:
                changes.append((at, order + "H", _ASSOCIATED))
    if all(struct.unpack_from(form, data, at)[0] == value for at, form, value in changes):
        return data
    copy = bytearray(data)
    for at, form, value in changes:
        struct.pack_into(form, copy, at, value)
    return bytes(copy)
