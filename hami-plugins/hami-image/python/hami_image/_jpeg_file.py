"""The segments and scans of a JPEG file. libjpeg decodes a file whose data end early as if it were complete."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

SOI, EOI, SOS = 0xD8, 0xD9, 0xDA
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF0 to SOF15 without DHT, JPG and DAC
_PROGRESSIVE = 0xC2
_HUFFMAN_CODED = (0xC0, 0xC1, _PROGRESSIVE)

# Limits for damaged or malicious files. Real files have far fewer segments and almost no bytes between them.
_MAX_SEGMENTS = 10_000
_MAX_SKIPPED_BYTES = 65_536  # between the segments
# Like libjpeg, skips stuffed zeros, fill bytes and markers without a segment (TEM, RST0 to RST7).
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")
_END_OF_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_MIN_BITS = 2  # of an 8 x 8 block: a Huffman code has at least one bit, and a block has a DC and an AC code
_BLOCK_BYTES = 2 * 64  # of the coefficients of a block
_PADDING = b"\xff\0" * 8  # libjpeg reads at most 8 bytes ahead; no complete Huffman table has a code of ones only


class Segment(NamedTuple):
    """A marker, and the range of its content. The data of a scan follow its segment, up to `scan_end`."""

    marker: int
    begin: int
    end: int
    scan_end: int


def segments(data: memoryview) -> Iterator[Segment]:
    """Yield the segments exactly as libjpeg reads them; SOI and EOI are the last.

    Raises:
        struct.error: the file ends within a segment's length.
    """
    at, skipped = 2, 0
    for _ in range(_MAX_SEGMENTS):
        found = _MARKER.search(data, at, at + _MAX_SKIPPED_BYTES - skipped)
        if not found:
            return
        skipped += found.start() - at
        at = found.end()
        marker = data[at - 1]
        if marker in (SOI, EOI):
            yield Segment(marker, at, at, at)
            return
        (length,) = struct.unpack_from(">H", data, at)
        if length < 2:
            return
        begin, at = at + 2, at + length
        scan_end = at
        if marker == SOS:
            next_marker = _END_OF_SCAN.search(data, at)
            scan_end = next_marker.start() if next_marker else len(data)
        yield Segment(marker, begin, at, scan_end)
        at = scan_end


class _Frame(NamedTuple):
    progressive: bool
    blocks: dict[int, int]  # number of 8 x 8 blocks, by component


def data_to_decode(data: memoryview, max_scans: int) -> bytes | memoryview:
    """Return what a decoder should get instead of a JPEG file, so that it fails if the data of the file end early.

    libjpeg replaces missing data by gray when it reaches a marker, and fails when it reaches the end of its input.
    Therefore the data of the only scan of a picture are returned without the marker behind them. The scans of a
    picture with several scans are compared with the least number of bits that their blocks need.

    Raises:
        ValueError: the picture is not complete, has more scans than `max_scans`, or is of an unsupported kind; the text
            follows "the JPEG image" in messages.
        struct.error, IndexError: the file ends within a segment.
    """
    frame = None
    scans = 0
    missing: set[int] = set()
    for segment in segments(data):
        if segment.marker in FRAMES:
            if frame is not None:
                raise ValueError("has two frames; the file is truncated or damaged")
            frame = _read_frame(data, segment)
            missing = set(frame.blocks)
        elif segment.marker == SOS and frame is not None:
            scans += 1
            if scans > max_scans:
                raise ValueError(f"has more than max_scans = {max_scans} scans; save it again or raise max_scans")
            components = set(data[segment.begin + 1 : segment.begin + 1 + 2 * data[segment.begin] : 2])
            first_coefficient = data[segment.begin + 1 + 2 * data[segment.begin]]
            if not frame.progressive or first_coefficient == 0:
                _check_size(frame, components, segment.scan_end - segment.end)
                missing -= components
            if not frame.progressive and components == set(frame.blocks):
                return b"".join((data[: segment.scan_end], _PADDING))
    if missing:
        raise ValueError("has no data for some of its components; the file is truncated or damaged")
    return data


def coefficient_bytes(data: memoryview) -> int:
    """Return the memory that libjpeg needs for the coefficients of a file with several scans; 0: it keeps none.

    Raises:
        struct.error, IndexError: the file ends within a segment.
    """
    frame = None
    for segment in segments(data):
        if segment.marker in FRAMES:
            if segment.marker not in _HUFFMAN_CODED:
                return 0  # `data_to_decode` refuses it
            try:
                frame = _read_frame(data, segment)
            except ValueError:  # as above
                return 0
        elif segment.marker == SOS and frame is not None:
            if frame.progressive or data[segment.begin] < len(frame.blocks):
                return _BLOCK_BYTES * sum(frame.blocks.values())
            return 0
    return 0


def _read_frame(data: memoryview, segment: Segment) -> _Frame:
    if segment.marker not in _HUFFMAN_CODED:
        raise ValueError(
            f"uses coding process {segment.marker - 0xC0}; save it as a baseline or progressive JPEG with Huffman codes"
        )
    height, width, count = struct.unpack_from(">HHB", data, segment.begin + 1)
    parts = [data[segment.begin + 6 + 3 * i : segment.begin + 9 + 3 * i] for i in range(count)]
    factors = {part[0]: (part[1] >> 4, part[1] & 15) for part in parts}
    most_x = max((x for x, _ in factors.values()), default=0)
    most_y = max((y for _, y in factors.values()), default=0)
    if not factors or min(min(pair) for pair in factors.values()) == 0:
        raise ValueError("has a frame without components; the file is truncated or damaged")
    blocks = {name: -(-width * x // (8 * most_x)) * -(-height * y // (8 * most_y)) for name, (x, y) in factors.items()}
    return _Frame(segment.marker == _PROGRESSIVE, blocks)


def _check_size(frame: _Frame, components: set[int], size: int) -> None:
    """Check that a scan of `size` bytes can hold the blocks of its components. DC scans need one bit per block."""
    bits = 1 if frame.progressive else _MIN_BITS
    needed = -(-bits * sum(frame.blocks.get(name, 0) for name in components) // 8)
    if size < needed:
        raise ValueError(
            f"has a scan of {size:,} bytes, which needs at least {needed:,}; the file is truncated or damaged"
        )
