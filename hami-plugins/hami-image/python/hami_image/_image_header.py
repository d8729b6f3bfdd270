"""ImageHeader: the size of an image, read from the header of its file, so that huge images are rejected early."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hami_image._box_file import CODESTREAM, read_avif, read_jpeg2000
from hami_image._jpeg_file import EOI, FRAMES, SOI, SOS, coefficient_bytes, segments
from hami_image._png_file import chunks
from hami_image._tiff_file import byte_order, entries
from hami_image._webp_file import extended, has_chunk, plain_first_image

FORMATS = "JPEG, PNG, WebP, BMP, GIF, TIFF, AVIF or JPEG 2000"

_TIFF_SIZE_TAGS = _TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_TILE_WIDTH, _TIFF_TILE_HEIGHT = 256, 257, 322, 323
_TIFF_BITS, _TIFF_COMPRESSION, _TIFF_SAMPLES, _TIFF_STRIP_ROWS = 258, 259, 277, 278
# Bytes of memory per pixel, with the result; measured by the tests.
_WEBP_LOSSY = 6
_WEBP_LOSSLESS = 8
_WEBP_ALPHA = 9
_WEBP_ANIMATED = 12
_GIF = 14
_AVIF = 24
_AVIF_ALPHA = 40
_JPEG2000 = 7
_JPEG2000_COMPONENT = 4
# The most bytes of pixels that one byte of compressed data can hold: LZW, Deflate (both codes) and PackBits.
_TIFF_MAX_RATIO = {5: 1400, 8: 1032, 32946: 1032, 32773: 64}
_TIFF_INTEGER_BYTES = {3: 2, 4: 4, 16: 8}  # by field type: SHORT, LONG, LONG8
_MAX_TIFF_SAMPLES = 65_535


class ImageHeader(NamedTuple):
    """The properties of an image file that its header states."""

    format: str
    size: tuple[int, int] | None  # (width, height) as stored; None if the header is incomplete or ambiguous
    alpha: bool = False
    is_deep: bool = False  # a PNG file with 16 bits per channel
    tile: tuple[int, int] = (0, 0)  # (width, height) of TIFF tiles: even a small image needs memory for whole tiles
    min_bytes: int = 0  # a smaller TIFF file cannot hold the pixels
    pixel_bytes: int = 0  # least memory that OpenCV needs to decode a pixel, with the result; 0: that of two results
    buffer_bytes: int = 0  # memory that it needs in addition to a result (JPEG) or two color results (TIFF)
    transforms: Sequence[tuple[bytes, int]] = ()  # of an AVIF file, as `transformed` takes them
    problem: str = ""  # why such a file is not decoded; it follows the format in messages

    def memory(self, channels: int) -> int:
        """Return the bytes of memory, with the result, that decoding needs for a result with so many channels."""
        width, height = self.size or (0, 0)
        results = 1 if self.format == "JPEG" and self.buffer_bytes else 2
        channels = 3 if self.format == "TIFF" else channels
        return max(
            results * width * height * channels + self.buffer_bytes,
            2 * width * height * channels,
            width * height * self.pixel_bytes,
        )


def read_header(data: memoryview) -> ImageHeader | None:
    """Return the header of an image file, or None if the format is unknown."""
    start = bytes(data[:16])
    for name, matches, read in _READERS:
        if matches(start):
            try:
                return read(name, data)
            except (struct.error, LookupError, OverflowError):  # the file ends early, or exceeds our limits
                return ImageHeader(name, None)
    return None


def _jpeg(name: str, data: memoryview) -> ImageHeader:
    for segment in segments(data):
        if segment.marker in (SOI, EOI, SOS):  # a second start, the end, or pixels before a frame
            break
        if segment.marker in FRAMES:
            height, width = struct.unpack_from(">HH", data, segment.begin + 1)
            return ImageHeader(name, (width, height), buffer_bytes=coefficient_bytes(data))
    return ImageHeader(name, None)


def _png(name: str, data: memoryview) -> ImageHeader:
    length, kind, width, height, depth, color = struct.unpack_from(">I4sIIBB", data, 8)
    if kind != b"IHDR" or length != 13:
        return ImageHeader(name, None)
    # OpenCV ignores the transparent value of a gray image (color type 0).
    alpha = color in (4, 6) or (color != 0 and any(chunk.kind == b"tRNS" for chunk in chunks(data)))
    return ImageHeader(name, (width, height), alpha, is_deep=depth == 16)


def _gif(name: str, data: memoryview) -> ImageHeader:
    return ImageHeader(name, struct.unpack_from("<HH", data, 6), pixel_bytes=_GIF)


def _bmp(name: str, data: memoryview) -> ImageHeader:
    (header_size,) = struct.unpack_from("<I", data, 14)
    if header_size == 12:
        return ImageHeader(name, struct.unpack_from("<HH", data, 18))
    width, height = struct.unpack_from("<ii", data, 18)
    return ImageHeader(name, (abs(width), abs(height)))  # a negative height means top row first


def _webp(name: str, data: memoryview) -> ImageHeader:
    kind = bytes(data[12:16])
    if kind == b"VP8X":
        header = extended(data)
        pixel_bytes = _WEBP_LOSSY
        if header.animated:
            image = plain_first_image(data)
            pixel_bytes = _WEBP_ANIMATED if image is None else _WEBP_LOSSLESS
        elif header.alpha:
            pixel_bytes = _WEBP_ALPHA
        elif has_chunk(data, b"VP8L"):
            pixel_bytes = _WEBP_LOSSLESS
        return ImageHeader(name, header.size, header.alpha, pixel_bytes=pixel_bytes)
    if kind == b"VP8L":
        signature, bits = struct.unpack_from("<BI", data, 20)
        if signature != 0x2F:
            return ImageHeader(name, None)
        alpha = bool(bits >> 28 & 1)
        pixel_bytes = _WEBP_ALPHA if alpha else _WEBP_LOSSLESS
        return ImageHeader(name, ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1), alpha, pixel_bytes=pixel_bytes)
    if kind == b"VP8 " and bytes(data[23:26]) == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return ImageHeader(name, (width & 0x3FFF, height & 0x3FFF), pixel_bytes=_WEBP_LOSSY)
    return ImageHeader(name, None)


def _tiff(name: str, data: memoryview) -> ImageHeader:
    order = byte_order(data)
    sizes: dict[int, int] = {}  # by tag
    others = {_TIFF_BITS: 1, _TIFF_COMPRESSION: 1, _TIFF_SAMPLES: 1}  # the least, where the value is elsewhere
    bits_of_samples: tuple[int, ...] = (1,)
    strip_rows = sys.maxsize
    for tag, field_type, values, at, room in entries(data):
        value = bytes(data[at : at + room])
        if tag in _TIFF_SIZE_TAGS:
            length = _TIFF_INTEGER_BYTES.get(field_type)
            # Ambiguous: libtiff may read such a field differently, or use the other field with this tag.
            if length is None or length > len(value) or values != 1 or tag in sizes:
                return ImageHeader(name, None)
            sizes[tag] = _integer(value[:length], order)
        elif tag == _TIFF_STRIP_ROWS and values == 1:
            strip_rows = _integer(value[: _TIFF_INTEGER_BYTES.get(field_type, len(value))], order)
        elif tag in others and field_type == 3 and values == 1:
            others[tag] = struct.unpack_from(order + "H", value)[0]
        if tag == _TIFF_BITS and field_type == 3:
            elsewhere = 2 * values > len(value)
            source, start = (data, _integer(value, order)) if elsewhere else (value, 0)
            bits_of_samples = struct.unpack_from(f"{order}{min(values, _MAX_TIFF_SAMPLES)}H", source, start)
    if _TIFF_WIDTH not in sizes or _TIFF_HEIGHT not in sizes:
        return ImageHeader(name, None)
    width, height = sizes[_TIFF_WIDTH], sizes[_TIFF_HEIGHT]
    tile = (sizes.get(_TIFF_TILE_WIDTH, 0), sizes.get(_TIFF_TILE_HEIGHT, 0))
    ratio = _TIFF_MAX_RATIO.get(others[_TIFF_COMPRESSION])
    least_bits = width * height * others[_TIFF_BITS] * others[_TIFF_SAMPLES]
    part = tile[0] * tile[1] or width * min(strip_rows, height)
    part_bytes = part * others[_TIFF_SAMPLES] * -(-max(bits_of_samples, default=1) // 8)
    return ImageHeader(
        name,
        (width, height),
        tile=tile,
        min_bytes=least_bits // (8 * ratio) if ratio else 0,
        buffer_bytes=2 * part_bytes,
    )


def _avif(name: str, data: memoryview) -> ImageHeader:
    found = read_avif(data)
    pixel_bytes = _AVIF_ALPHA if found.alpha else _AVIF
    return ImageHeader(
        name, found.size, found.alpha, pixel_bytes=pixel_bytes, transforms=found.transforms, problem=found.problem
    )


def _jpeg2000(name: str, data: memoryview) -> ImageHeader:
    found = read_jpeg2000(data)
    if found is None:
        return ImageHeader(name, None)
    size, components = found
    return ImageHeader(name, size, pixel_bytes=_JPEG2000 + _JPEG2000_COMPONENT * components)


def _integer(value: bytes, order: str) -> int:
    return int.from_bytes(value, "little" if order == "<" else "big")


_Matches = Callable[[bytes], bool]  # takes the first 16 bytes of a file
_Reads = Callable[[str, memoryview], ImageHeader]

_READERS: tuple[tuple[str, _Matches, _Reads], ...] = (
    ("JPEG", lambda start: start.startswith(b"\xff\xd8\xff"), _jpeg),
    ("PNG", lambda start: start.startswith(b"\x89PNG\r\n\x1a\n"), _png),
    ("WebP", lambda start: start.startswith(b"RIFF") and start[8:12] == b"WEBP", _webp),
    ("BMP", lambda start: start.startswith(b"BM"), _bmp),
    ("GIF", lambda start: start.startswith((b"GIF87a", b"GIF89a")), _gif),
    ("AVIF", lambda start: start[4:8] == b"ftyp" and start[8:12] in (b"avif", b"avis"), _avif),
    ("JPEG 2000", lambda start: start.startswith((b"\0\0\0\x0cjP  \r\n\x87\n", CODESTREAM)), _jpeg2000),
    ("TIFF", lambda start: start.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")), _tiff),
)
