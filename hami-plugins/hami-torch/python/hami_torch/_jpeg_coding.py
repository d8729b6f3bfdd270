"""How the pixels of a JPEG file are coded, read from its header: nvJPEG takes every file of three components for YCbCr.

hami-cuda has the same rules.
"""

from __future__ import annotations

import struct

_END_OF_IMAGE, _START_OF_SCAN = 0xD9, 0xDA
_JFIF_SEGMENT, _ADOBE_SEGMENT = 0xE0, 0xEE
_JFIF_BYTES, _ADOBE_BYTES = 14, 12  # libjpeg ignores shorter segments
_SEGMENT = struct.Struct(">BBH")  # 0xff, the marker, the length without these two
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_DECODED_FRAMES = frozenset([0xC0, 0xC1, 0xC2])  # baseline, extended sequential and progressive
_WITHOUT_SEGMENT = frozenset([0x00, 0x01, *range(0xD0, 0xD9)])
# Sampling factors of luma in 4:4:4, 4:2:2, 4:4:0, 4:2:0 and 4:1:1, with chroma of 1 x 1.
_LUMA_FACTORS = frozenset([0x11, 0x21, 0x12, 0x22, 0x41])
_ONE_BY_ONE, _TWO_BY_TWO = 0x11, 0x22
_NARROW = 4  # libjpeg interpolates chroma of more than two columns


def nvjpeg_decodes(encoded: bytes, interpolates: bool = True) -> bool:
    """Return whether nvJPEG decodes a file as libjpeg does; true too if the header cannot be read.

    Args:
        encoded: The file.
        interpolates: Whether nvJPEG interpolates subsampled chroma. libjpeg does not, in files that are too narrow.

    It does not for files of red, green and blue, which it takes for YCbCr, and for files that it may reject or not,
    depending on its version: CMYK, 12 bits, lossless, arithmetic-coded, or with unusual sampling factors. Of files that
    end early it leaves the missing part as the memory was.
    """
    frame_marker, frame = 0, b""
    is_jfif, adobe_transform = False, None
    at, size = 2, len(encoded)
    while at + _SEGMENT.size <= size:
        start, marker, length = _SEGMENT.unpack_from(encoded, at)
        if start != 0xFF:  # libjpeg skips other bytes
            at = encoded.find(b"\xff", at)
            if at < 0:
                break
        elif marker == 0xFF:
            at += 1
        elif marker in _WITHOUT_SEGMENT:
            at += 2
        elif marker in (_START_OF_SCAN, _END_OF_IMAGE) or length < 2 or at + 2 + length > size:
            break
        else:
            if marker in _FRAMES and not frame:
                frame_marker, frame = marker, encoded[at + 4 : at + 2 + length]
                if is_jfif:
                    break  # the Adobe segment does not count beside it
            elif marker == _JFIF_SEGMENT and length >= 2 + _JFIF_BYTES and encoded.startswith(b"JFIF\0", at + 4):
                is_jfif = True
            elif marker == _ADOBE_SEGMENT and length >= 2 + _ADOBE_BYTES and encoded.startswith(b"Adobe", at + 4):
                adobe_transform = encoded[at + 3 + _ADOBE_BYTES]
            at += 2 + length
    if len(frame) < 6 or len(frame) < 6 + 3 * frame[5]:
        return True
    names, factors = frame[6 : 6 + 3 * frame[5] : 3], frame[7 : 6 + 3 * frame[5] : 3]
    if frame_marker not in _DECODED_FRAMES or frame[0] != 8:
        return False
    if encoded.rfind(b"\xff\xd9", at) < 0:
        return False  # it ends early
    is_rgb = not is_jfif and (names == b"RGB" if adobe_transform is None else adobe_transform == 0)
    if len(names) == 1:
        return factors[0] == _ONE_BY_ONE
    if len(names) != 3:
        return False
    if interpolates and factors[0] == _TWO_BY_TWO and int.from_bytes(frame[3:5], "big") <= _NARROW:
        return False
    is_usual = factors[0] in _LUMA_FACTORS and factors[1] == factors[2] == _ONE_BY_ONE
    return is_usual and not is_rgb
