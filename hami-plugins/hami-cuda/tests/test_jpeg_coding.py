"""Which JPEG files nvJPEG decodes: those that it decodes as libjpeg does. The header tells, by the rules of libjpeg."""

from __future__ import annotations

import io
from typing import Any

import hami
import pytest
from test_decode_tensor import nvjpeg
from test_failures import run

np = pytest.importorskip("numpy", reason="numpy is not installed")
pytestmark = pytest.mark.usefixtures("fake")
__all__ = ["nvjpeg"]  # a fixture

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
    "4:2:2": file_of(jfif(), frame(factors=b"\x21\x11\x11")),
    "4:4:0": file_of(jfif(), frame(factors=b"\x12\x11\x11")),
    "4:1:1": file_of(jfif(), frame(factors=b"\x41\x11\x11")),
    "Adobe of a thumbnail": file_of(segment(0xE1, adobe(0)), frame()),
    "fill bytes": file_of(b"\xff\xff", jfif(), b"\0\0", frame()),
    "bytes after the end": file_of(jfif(), frame()) + bytes(100),
    "only the start": b"\xff\xd8\xff\xc0\0\x11\x08",
    "a short frame": b"\xff\xd8" + segment(BASELINE, b"\x08\0\4"),
    "too few components": b"\xff\xd8" + segment(BASELINE, b"\x08\0\4\0\6\3\1\x11\0"),
}
OTHERS = {
    "Adobe RGB": (file_of(adobe(0), frame()), "whose components are red, green and blue"),
    "Adobe RGB after the frame": (file_of(frame(), adobe(0)), "whose components are red, green and blue"),
    "named RGB": (file_of(frame(b"RGB", b"\x11\x11\x11")), "whose components are red, green and blue"),
    "CMYK": (file_of(adobe(0), frame(b"\1\2\3\4", b"\x11\x11\x11\x11")), "which has neither one nor three components"),
    "YCCK": (file_of(adobe(2), frame(b"\1\2\3\4", b"\x22\x11\x11\x22")), "which has neither one nor three components"),
    "two components": (file_of(frame(b"\1\2", b"\x11\x11")), "which has neither one nor three components"),
    "12 bits": (file_of(jfif(), frame(kind=EXTENDED, bits=12)), "which does not have 8 bits per sample"),
    "lossless": (file_of(frame(kind=LOSSLESS)), "which is lossless, hierarchical or arithmetic-coded"),
    "arithmetic": (file_of(jfif(), frame(kind=ARITHMETIC)), "which is lossless, hierarchical or arithmetic-coded"),
    "chroma larger than luma": (file_of(frame(factors=b"\x11\x22\x22")), "whose sampling factors are unusual"),
    "two kinds of chroma": (file_of(frame(factors=b"\x22\x11\x21")), "whose sampling factors are unusual"),
    "no end": (file_of(jfif(), frame())[:-2], "which ends early"),
    "no end but that of a thumbnail": (file_of(segment(0xE1, END), frame())[:-2], "which ends early"),
    "no end of a gray file": (file_of(frame(b"\1", b"\x11"))[:-2], "which ends early"),
    "gray of 2 x 2": (file_of(frame(b"\1", b"\x22")), "whose sampling factors are unusual"),
}


@pytest.fixture
def asked() -> list[bytes]:
    """The files that go to the backend in the brackets"""
    given: list[bytes] = []

    @hami.register
    class DecodesTheOthers(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                given.append(item["data"])
                item["result"] = np.zeros((4, 6, 3), np.uint8)

    return given


@pytest.mark.parametrize("name", NVJPEG)
def test_nvjpeg_decodes_files_of_luma_and_chroma(nvjpeg, asked, name):
    with hami.pipe(f"DecodeTensor(library='{nvjpeg._name}')[DecodesTheOthers]") as pipe:
        pipe({"data": NVJPEG[name]})
    assert asked == []


def test_a_header_is_read_without_the_data_of_a_scan_that_has_all_components(nvjpeg, asked):
    start = b"\xff\xd8" + jfif() + frame()
    scan = segment(0xDA, b"\3\1\0\2\0\3\0\0\x3f\0")
    for file, expected in ((start + scan + b"pixels" + END, len(start + scan)), (NVJPEG["JFIF"], len(NVJPEG["JFIF"]))):
        with hami.pipe(f"DecodeTensor(library='{nvjpeg._name}')[DecodesTheOthers]") as pipe:
            pipe({"data": file})
        assert nvjpeg.fake_header_bytes() == expected
    assert asked == []


@pytest.mark.parametrize("name", OTHERS)
def test_files_that_nvjpeg_takes_for_others_go_to_the_cpu(nvjpeg, asked, name):
    before = nvjpeg.fake_batches(), nvjpeg.fake_singles()
    with hami.pipe(f"DecodeTensor(library='{nvjpeg._name}')[DecodesTheOthers]") as pipe:
        pipe({"data": OTHERS[name][0]})
    assert asked == [OTHERS[name][0]]
    assert (nvjpeg.fake_batches(), nvjpeg.fake_singles()) == before


@pytest.mark.parametrize(("chroma", "count"), [("interpolate", 1), ("repeat", 0)])
def test_files_that_libjpeg_does_not_interpolate_go_to_the_cpu(nvjpeg, asked, chroma, count):
    narrow = file_of(segment(BASELINE, b"\x08\0\4\0\4\3\1\x22\0\2\x11\0\3\x11\0"))
    with hami.pipe(f"DecodeTensor(library='{nvjpeg._name}',chroma={chroma})[DecodesTheOthers]") as pipe:
        pipe({"data": narrow})
        pipe({"data": NVJPEG["JFIF"]})
    assert asked == [narrow] * count


def test_without_hami_image_the_error_says_what_the_file_is(nvjpeg, fake):
    text = run(
        fake,
        """
hami.native.allow_library(sys.argv[2])
with hami.pipe(f"DecodeTensor(library='{sys.argv[2]}')") as pipe:
    for file in sys.argv[3:]:
        try:
            pipe({"data": bytes.fromhex(file)})
        except hami.RequestError as error:
            print(str(error).split("\\n")[0])
""",
        nvjpeg._name,
        *(file.hex() for file, _ in OTHERS.values()),
        HAMI_PLUGINS="no:image",
    )
    assert text.splitlines() == [
        f"DecodeTensor: nvJPEG cannot decode this file of {len(file)} bytes, {reason}; hami-image decodes such files "
        "on the CPU: pip install hami-image"
        for file, reason in OTHERS.values()
    ]


@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
def test_real_files_of_rgb_and_cmyk_have_the_pixels_of_opencv(nvjpeg, color):
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    cv2 = pytest.importorskip("cv2", reason="hami-image needs OpenCV, which is not installed")
    pytest.importorskip("hami_image", reason="hami-image is not installed")
    picture = pillow.fromarray(np.random.default_rng(5).integers(0, 256, (40, 60, 3), np.uint8))
    flags = {"rgb": cv2.IMREAD_COLOR_RGB, "bgr": cv2.IMREAD_COLOR_BGR, "gray": cv2.IMREAD_GRAYSCALE}
    for mode, keys in ("RGB", {"keep_rgb": True}), ("RGB", {"keep_rgb": True, "progressive": True}), ("CMYK", {}):
        file = io.BytesIO()
        picture.convert(mode).save(file, "JPEG", quality=95, **keys)
        with hami.pipe(f"S[DecodeTensor(library='{nvjpeg._name}',color={color}),hami-cuda::CpuTensor]") as pipe:
            result = hami.to_numpy(pipe({"data": file.getvalue()})["result"])[0]
        expected = np.atleast_3d(cv2.imdecode(np.frombuffer(file.getvalue(), np.uint8), flags[color]))
        np.testing.assert_array_equal(result, expected.transpose(2, 0, 1), strict=True)


def test_chroma_is_interpolated_unless_the_configuration_says_otherwise(nvjpeg, fake):
    text = run(
        fake,
        """
hami.native.allow_library(sys.argv[2])
nvjpeg = ctypes.CDLL(sys.argv[2])
for chroma in ("", ",chroma=repeat", ",chroma=interpolate"):
    hami.pipe(f"DecodeTensor(library='{sys.argv[2]}'{chroma})").close()
    print(nvjpeg.fake_flags())
    nvjpeg.nvjpegCreateEx(0, None, None, 7, None)  # the decoders are kept, so nothing is created for the third
""",
        nvjpeg._name,
        HAMI_PLUGINS="no:image",
    )
    assert text.split() == ["32", "0", "7"]


@pytest.mark.parametrize(("version", "flags"), [("12.1", 32), ("12.0", 0), ("11.9", 0)])
def test_an_older_nvjpeg_repeats_chroma_and_says_so_once(nvjpeg, fake, version, flags):
    text = run(
        fake,
        """
import logging
logging.basicConfig(stream=sys.stdout, format="%(message)s")
hami.native.allow_library(sys.argv[2])
hami.pipe({"backend": f"DecodeTensor(library='{sys.argv[2]}')", "instance_num": 3}).close()
print(ctypes.CDLL(sys.argv[2]).fake_flags())
""",
        nvjpeg._name,
        HAMI_PLUGINS="no:image",
        FAKE_NVJPEG_VERSION=version,
    )
    *logged, seen = text.splitlines()
    assert int(seen) == flags
    assert [line.count("repeats subsampled chroma, because it is older than 12.1") for line in logged] == [1] * (
        not flags
    )
