"""Which JPEG files nvJPEG decodes as libjpeg does: the header tells, by the rules of libjpeg."""

from __future__ import annotations

import pytest

from hami_torch._jpeg_coding import nvjpeg_decodes

JFIF, ADOBE = 0xE0, 0xEE
END = b"\xff\xd9"
BASELINE, EXTENDED, PROGRESSIVE, LOSSLESS, ARITHMETIC = 0xC0, 0xC1, 0xC2, 0xC3, 0xC9


def segment(marker: int, data: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(data) + 2).to_bytes(2, "big") + data


def frame(names: bytes = b"\1\2\3", factors: bytes = b"\x22\x11\x11", kind: int = BASELINE, bits: int = 8) -> bytes:
    components = b"".join(bytes([name, factor, 0]) for name, factor in zip(names, factors, strict=True))
    return segment(kind, bytes([bits, 0, 4, 0, 6, len(names)]) + components)


def jfif() -> bytes:
    return segment(JFIF, b"JFIF\0\1\1\0\0\1\0\1\0\0")


def adobe(transform: int) -> bytes:
    return segment(ADOBE, b"Adobe\0\x64\0\0\0\0" + bytes([transform]))


def file_of(*segments: bytes) -> bytes:
    return b"\xff\xd8" + b"".join(segments) + segment(0xDA, b"\1\1\0\0\x3f\0") + b"pixels" + END


NVJPEG = {
    "JFIF": file_of(jfif(), frame()),
    "no segment": file_of(frame()),
    "gray": file_of(jfif(), frame(b"\1", b"\x11")),
    "Adobe YCbCr": file_of(adobe(1), frame()),
    "Adobe with an unknown transform": file_of(adobe(2), frame()),
    "JFIF before Adobe": file_of(jfif(), adobe(0), frame(b"RGB")),
    "names from zero": file_of(frame(b"\0\1\2")),
    "extended": file_of(jfif(), frame(kind=EXTENDED)),
    "progressive": file_of(jfif(), frame(kind=PROGRESSIVE)),
    "4:4:4": file_of(jfif(), frame(factors=b"\x11\x11\x11")),
    "4:1:1": file_of(jfif(), frame(factors=b"\x41\x11\x11")),
    "Adobe of a thumbnail": file_of(segment(0xE1, adobe(0)), frame()),
    "fill bytes": file_of(b"\xff\xff", jfif(), b"\0\0", frame()),
    "bytes after the end": file_of(jfif(), frame()) + bytes(100),
    "only the start": b"\xff\xd8\xff\xc0\0\x11\x08",
    "only the marker": b"\xff\xd8\xff",
    "a short frame": b"\xff\xd8" + segment(BASELINE, b"\x08\0\4"),
    "too few components": b"\xff\xd8" + segment(BASELINE, b"\x08\0\4\0\6\3\1\x11\0"),
}
OTHERS = {
    "Adobe RGB": file_of(adobe(0), frame()),
    "Adobe RGB after the frame": file_of(frame(), adobe(0)),
    "named RGB": file_of(frame(b"RGB", b"\x11\x11\x11")),
    "CMYK": file_of(adobe(0), frame(b"\1\2\3\4", b"\x11\x11\x11\x11")),
    "YCCK": file_of(adobe(2), frame(b"\1\2\3\4", b"\x22\x11\x11\x22")),
    "two components": file_of(frame(b"\1\2", b"\x11\x11")),
    "no components": file_of(frame(b"", b"")),
    "12 bits": file_of(jfif(), frame(kind=EXTENDED, bits=12)),
    "lossless": file_of(frame(kind=LOSSLESS)),
    "arithmetic": file_of(jfif(), frame(kind=ARITHMETIC)),
    "chroma larger than luma": file_of(frame(factors=b"\x11\x22\x22")),
    "no end": file_of(jfif(), frame())[:-2],
    "no end but that of a thumbnail": file_of(segment(0xE1, END), frame())[:-2],
    "no end of a gray file": file_of(frame(b"\1", b"\x11"))[:-2],
    "gray of 2 x 2": file_of(frame(b"\1", b"\x22")),
}


@pytest.mark.parametrize("name", NVJPEG)
def test_nvjpeg_decodes_files_of_luma_and_chroma(name):
    assert nvjpeg_decodes(NVJPEG[name])


@pytest.mark.parametrize("name", OTHERS)
def test_files_that_nvjpeg_takes_for_others_go_to_the_cpu(name):
    assert not nvjpeg_decodes(OTHERS[name])


def test_libjpeg_does_not_interpolate_narrow_files():
    narrow = file_of(segment(BASELINE, b"\x08\0\4\0\4\3\1\x22\0\2\x11\0\3\x11\0"))
    assert not nvjpeg_decodes(narrow)
    assert nvjpeg_decodes(narrow, interpolates=False)
