"""AVIF and JPEG 2000 files: both consist of boxes with a length and a type (ISO/IEC 14496-12, 15444-1)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from hami_image import _av1_stream

CODESTREAM = b"\xff\x4f\xff\x51"  # the first two markers of a JPEG 2000 codestream: start, and size
_SYCC = 18  # YCbCr of the full range, with the matrix of ITU-R BT.601
_MAX_EXTENTS = 10_000  # parts of all items together; items have one
_MAX_BOXES = 10_000  # of one level; files have about ten
_ROTATIONS = {1: cv2.ROTATE_90_COUNTERCLOCKWISE, 2: cv2.ROTATE_180, 3: cv2.ROTATE_90_CLOCKWISE}  # by field `irot`


class Box(NamedTuple):
    """A box: its type, and the range of its content."""

    kind: bytes
    begin: int
    end: int


class Avif(NamedTuple):
    """What the boxes of an AVIF file say."""

    size: tuple[int, int] | None  # (width, height) as stored: of the largest picture in it
    alpha: bool
    transforms: Sequence[tuple[bytes, int]]  # "irot" and "imir" of the picture with their value, in order
    depth: int  # bits of a value
    is_limited_gray: bool  # without colours, and black is 16 and white 235 (of 8 bits)
    problem: str  # why it is not decoded


class Jpeg2000(NamedTuple):
    """What the boxes and the codestream of a JPEG 2000 file say."""

    size: tuple[int, int]  # (width, height)
    components: int
    sycc_at: int  # place of the colour space if that is sYCC; else 0


def boxes(data: memoryview, begin: int, end: int) -> Iterator[Box]:
    """Yield the boxes in a range.

    Raises:
        struct.error, IndexError: a box ends after the range, or there are too many.
    """
    for _ in range(_MAX_BOXES):
        if begin >= end:
            return
        length, kind = struct.unpack_from(">I4s", data, begin)
        start = begin + 8
        if length == 1:
            (length,) = struct.unpack_from(">Q", data, start)
            start += 8
        stop = end if length == 0 else begin + length  # 0: to the end
        if stop < start or stop > end:
            raise IndexError("a box ends after its outer box")
        yield Box(kind, start, stop)
        begin = stop
    raise IndexError("too many boxes")


def read_jpeg2000(data: memoryview) -> Jpeg2000 | None:
    """Read the boxes and the codestream of a JPEG 2000 file; None without a codestream."""
    begin = sycc_at = 0
    if bytes(data[:4]) != CODESTREAM:
        parts: dict[bytes, Box] = {}
        for box in boxes(data, 0, len(data)):
            parts.setdefault(box.kind, box)
            if box.kind == b"jp2c":
                break
        begin = parts[b"jp2c"].begin if b"jp2c" in parts else -1
        sycc_at = _sycc_at(data, parts[b"jp2h"]) if b"jp2h" in parts else 0
    if begin < 0 or bytes(data[begin : begin + 4]) != CODESTREAM:
        return None
    right, bottom, left, top, components = struct.unpack_from(">IIII16xH", data, begin + 8)
    return Jpeg2000((max(right - left, 0), max(bottom - top, 0)), components, sycc_at)


def _sycc_at(data: memoryview, header: Box) -> int:
    """Return the place of the colour space in the first box `colr`, which decoders use, if it is sYCC; else 0."""
    for box in boxes(data, header.begin, header.end):
        if box.kind == b"colr":
            is_listed = box.end - box.begin >= 7 and data[box.begin] == 1
            return box.begin + 3 if is_listed and _number(data, box.begin + 3, 4) == _SYCC else 0
    return 0


def read_avif(data: memoryview) -> Avif:
    """Read the boxes of an AVIF file, and the sizes of its AV1 pictures: the decoder goes by these.

    Raises:
        struct.error, IndexError: the file ends early.
    """
    meta = next((box for box in boxes(data, 0, len(data)) if box.kind == b"meta"), None)
    if meta is None or bytes(data[8:12]) == b"avis":
        return Avif((0, 0), False, (), 8, False, "is a sequence of images; save one of them as a file of its own")
    parts = {box.kind: box for box in boxes(data, meta.begin + 4, meta.end)}
    inside = {box.kind: box for box in boxes(data, *parts[b"iprp"][1:])} if b"iprp" in parts else {}
    properties = list(boxes(data, *inside[b"ipco"][1:])) if b"ipco" in inside else []
    primary = _number(data, parts[b"pitm"].begin + 4, 4 if data[parts[b"pitm"].begin] else 2) if b"pitm" in parts else 0
    numbers = _associations(data, inside[b"ipma"]).get(primary, []) if b"ipma" in inside else []
    own = [properties[number - 1] for number in numbers if 0 < number <= len(properties)]
    sizes = [struct.unpack_from(">II", data, each.begin + 4) for each in properties if each.kind == b"ispe"]
    alpha = any(each.kind == b"auxC" and b":alpha" in bytes(data[each.begin : each.end]) for each in properties)
    sequences = [each for stream in _streams(data, parts) for each in _av1_stream.sequences(stream)]
    sizes += [each.size for each in sequences]
    is_gray = bool(sequences) and all(each.is_gray for each in sequences)
    problem = ""
    if any(each.kind == b"clap" for each in own):
        problem = "has a clean aperture (clap), which is not supported; crop the image and save it again"
    elif is_gray and alpha:
        problem = "is gray with an alpha channel, which is not supported; save it in colours, or without alpha"
    return Avif(
        max(sizes, key=lambda each: each[0] * each[1], default=None),
        alpha,
        [(each.kind, data[each.begin]) for each in own if each.kind in (b"irot", b"imir")],
        max((each.depth for each in sequences), default=8),
        is_gray and _is_limited(data, own, sequences),
        problem,
    )


def _is_limited(data: memoryview, properties: Sequence[Box], sequences: Sequence[_av1_stream.Sequence]) -> bool:
    """Return whether black is 16: the boxes `colr` of the picture say so, or its stream where they do not."""
    for box in properties:
        if box.kind == b"colr" and bytes(data[box.begin : box.begin + 4]) == b"nclx":
            return not data[box.begin + 10] & 0x80
    return any(each.is_limited for each in sequences)


def _number(data: memoryview, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


def _streams(data: memoryview, parts: Mapping[bytes, Box]) -> Iterator[memoryview]:
    """Yield the AV1 streams of the items (boxes `iinf` and `iloc`)."""
    if b"iloc" not in parts or b"iinf" not in parts:
        return
    pictures = set(_av1_items(data, parts[b"iinf"]))
    begin = parts[b"iloc"].begin
    version, sizes = data[begin], _number(data, begin + 4, 2)
    offset_size, length_size, base_size = sizes >> 12, sizes >> 8 & 15, sizes >> 4 & 15
    index_size = sizes & 15 if version else 0
    id_size = 4 if version == 2 else 2
    count, at = _number(data, begin + 6, id_size), begin + 6 + id_size
    extents_left, bytes_left = _MAX_EXTENTS, len(data)
    seen: set[tuple[tuple[int, int], ...]] = set()  # equal tiles are stored once
    for _ in range(min(count, _MAX_BOXES)):
        item, at = _number(data, at, id_size), at + id_size
        in_meta = version and _number(data, at, 2) & 15 == 1  # in the box `idat`
        at += (2 if version else 0) + 2
        base, extents = _number(data, at, base_size), _number(data, at + base_size, 2)
        at += base_size + 2
        extents_left -= extents
        if extents_left < 0:
            raise IndexError("too many parts of items")
        ranges = []
        for _ in range(extents):
            at += index_size
            start, length = _number(data, at, offset_size), _number(data, at + offset_size, length_size)
            at += offset_size + length_size
            data[at - 1]  # IndexError where the box ends early
            start += base + (parts[b"idat"].begin if in_meta and b"idat" in parts else 0)
            ranges.append((start, length or len(data)))
        if item not in pictures or tuple(ranges) in seen:
            continue
        seen.add(tuple(ranges))
        content = bytearray()
        for start, length in ranges:
            content += data[start : start + length]
            if len(content) > bytes_left:
                raise IndexError("the items have more bytes than the file")
        bytes_left -= len(content)
        yield memoryview(content)


def _av1_items(data: memoryview, box: Box) -> Iterator[int]:
    """Yield the numbers of the items that are AV1 pictures."""
    for each in boxes(data, box.begin + (8 if data[box.begin] else 6), box.end):
        id_size = 4 if data[each.begin] == 3 else 2
        if each.kind == b"infe" and bytes(data[each.begin + 6 + id_size : each.begin + 10 + id_size]) == b"av01":
            yield _number(data, each.begin + 4, id_size)


def _associations(data: memoryview, box: Box) -> dict[int, list[int]]:
    """Return the numbers of the properties of each item, counted from 1."""
    version, flags = data[box.begin], data[box.begin + 3]
    (count,) = struct.unpack_from(">I", data, box.begin + 4)
    at = box.begin + 8
    found: dict[int, list[int]] = {}
    for _ in range(min(count, _MAX_BOXES)):
        item, number = struct.unpack_from(">IB" if version else ">HB", data, at)
        at += 5 if version else 3
        form, mask = (">H", 0x7FFF) if flags & 1 else (">B", 0x7F)
        stop = at + number * struct.calcsize(form)
        found[item] = [value & mask for (value,) in struct.iter_unpack(form, data[at:stop])]
        at = stop
    return found


def transformed(image: NDArray[np.uint8], transforms: Sequence[tuple[bytes, int]]) -> NDArray[np.uint8]:
    """Turn and mirror a picture as an AVIF file requires; OpenCV returns it as it is stored."""
    for kind, value in transforms:
        if kind == b"irot" and value & 3:
            image = cv2.rotate(image, _ROTATIONS[value & 3])  # type: ignore[assignment]
        elif kind == b"imir":
            image = cv2.flip(image, value & 1)  # type: ignore[assignment]  # 0: upside down
    return image
