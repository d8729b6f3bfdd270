"""The size of the pictures in an AV1 stream, by its sequence headers (AV1 specification, 5.3 to 5.5)."""

from __future__ import annotations

from collections.abc import Iterator

_SEQUENCE_HEADER = 1  # type of an open bitstream unit (OBU)
_MAX_UNITS = 10_000


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


def sizes(stream: memoryview) -> Iterator[tuple[int, int]]:
    """Yield (width, height) of each sequence header in a stream: no picture after it is larger.

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
            yield _size(_Bits(stream[at : at + length]))
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


def _size(bits: _Bits) -> tuple[int, int]:
    bits.read(4)  # profile, still picture
    if bits.read(1):  # the short header of a still picture
        bits.read(5)
    else:
        _skip_timing(bits)
    widths, heights = bits.read(4) + 1, bits.read(4) + 1
    return bits.read(widths) + 1, bits.read(heights) + 1


def _skip_timing(bits: _Bits) -> None:
    """Skip the description of times and of operating points."""
    delay_bits = 0  # 0: the model of the decoder is not described
    if bits.read(1):
        bits.read(64)
        if bits.read(1):
            zeros = 0
            while not bits.read(1):
                zeros += 1
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
