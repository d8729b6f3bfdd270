"""The pictures in an AV1 stream, by its sequence headers (AV1 specification, 5.3 to 5.5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_SEQUENCE_HEADER = 1  # type of an open bitstream unit (OBU)
_MAX_UNITS = 10_000
_MAX_HEADER = 1024  # bytes of a sequence header that are read; with all operating points it has fewer than 500
_MAX_ZEROS = 32  # before a number of variable length


class Sequence(NamedTuple):
    """What a sequence header says."""

    size: tuple[int, int]  # (width, height); no picture after it is larger
    depth: int  # bits of a value: 8, 10 or 12
    is_gray: bool
    is_limited: bool  # of a gray picture: black is 16 and white 235 (of 8 bits)


class _Bits:
    """Reads numbers of so many bits, the most significant one first."""

    def __init__(self, data: memoryview) -> None:
        self._value = int.from_bytes(data, "big")
        self._left = 8 * len(data)

    def read(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise IndexError("the sequence header ends early")
        return self._value >> self._left & ((1 << count) - 1)


def sequences(stream: memoryview) -> Iterator[Sequence]:
    """Yield the sequence headers of a stream.

    Raises:
        IndexError: a unit ends after the stream.
    """
    at = 0
    for _ in range(_MAX_UNITS):
        if at >= len(stream):
            return
        header = stream[at]
        at += 2 if header & 4 else 1  # with a second byte
        length = len(stream) - at
        if header & 2:
            length, at = _leb128(stream, at)
        if at + length > len(stream):
            raise IndexError("a unit ends outside of the stream")
        if header >> 3 & 15 == _SEQUENCE_HEADER:
            yield _sequence(_Bits(stream[at : at + min(length, _MAX_HEADER)]))
        at += length
    raise IndexError("too many units")


def _leb128(data: memoryview, at: int) -> tuple[int, int]:
    """Return a number of up to eight bytes with seven bits each, and where it ends."""
    value = 0
    for number in range(8):
        byte = data[at + number]
        value |= (byte & 0x7F) << 7 * number
        if not byte & 0x80:
            return value, at + number + 1
    raise IndexError("a number is too long")


def _sequence(bits: _Bits) -> Sequence:
    profile = bits.read(3)
    bits.read(1)  # still picture
    is_still = bits.read(1)  # with the short header of a still picture
    if is_still:
        bits.read(5)
    else:
        _skip_timing(bits)
    widths, heights = bits.read(4) + 1, bits.read(4) + 1
    size = bits.read(widths) + 1, bits.read(heights) + 1
    _skip_tools(bits, has_frames=not is_still)
    depth = 8
    if bits.read(1):
        depth = 12 if profile == 2 and bits.read(1) else 10
    is_gray = bool(profile != 1 and bits.read(1))
    if bits.read(1):
        bits.read(24)  # primaries, transfer, matrix
    return Sequence(size, depth, is_gray, is_gray and not bits.read(1))


def _skip_timing(bits: _Bits) -> None:
    """Skip the description of times and of operating points."""
    delay_bits = 0  # 0: the model of the decoder is not described
    if bits.read(1):
        bits.read(64)
        if bits.read(1):
            zeros = 0
            while not bits.read(1):
                zeros += 1
                if zeros == _MAX_ZEROS:
                    raise IndexError("a number is too long")
            bits.read(zeros)
        if bits.read(1):
            delay_bits = bits.read(5) + 1
            bits.read(42)
    delays = bits.read(1)
    for _ in range(bits.read(5) + 1):
        bits.read(12)
        if bits.read(5) > 7:
            bits.read(1)
        if delay_bits and bits.read(1):
            bits.read(2 * delay_bits + 1)
        if delays and bits.read(1):
            bits.read(4)


def _skip_tools(bits: _Bits, *, has_frames: bool) -> None:
    """Skip the tools of the encoder; those for frames after the first are described if `has_frames`."""
    if has_frames and bits.read(1):
        bits.read(7)
    bits.read(3)
    if has_frames:
        bits.read(4)
        has_order = bits.read(1)
        if has_order:
            bits.read(2)
        has_screen_tools = bits.read(1) or bits.read(1)  # chosen by each frame, or forced
        if has_screen_tools and not bits.read(1):
            bits.read(1)
        if has_order:
            bits.read(3)
    bits.read(3)
