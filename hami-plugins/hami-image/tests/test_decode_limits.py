"""DecodeMat on damaged and malicious files: memory, processor time, and pictures whose data end early."""

from __future__ import annotations

import functools
import io
import json
import os
import re
import struct
import subprocess
import sys
import zlib

import cv2
import hami
import numpy as np
import pytest
from PIL import Image

PIXELS = 2000 * 2000


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(depth: int, *, before: bytes = b"", after: bytes = b"", rows: int = 2000) -> bytes:
    """A PNG file of 2000 x 2000 pixels with alpha, all of whose bytes are 7; chunks before and after its pixels."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 2000, 2000, depth, 6, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress((b"\0" + b"\7" * (2000 * depth // 2)) * rows))
    return b"\x89PNG\r\n\x1a\n" + header + before + pixels + after + chunk(b"IEND", b"")


def refused(run, data: bytes, **params) -> str:
    """Return the first line of the RequestError for `data`."""
    with pytest.raises(hami.RequestError) as error:
        run("DecodeMat", params, data=data)
    return str(error.value).splitlines()[0]


MEASURING = """
import hami, json, os, sys
import hami_image.decode_mat  # the processes have it already

def memory(key):
    return int(open("/proc/self/status").read().split(key)[1].split()[0]) * 1024

for line in sys.stdin:
    path, config = json.loads(line)
    if os.fork() == 0:
        with hami.pipe(config) as pipe:
            data = open(path, "rb").read()
            pipe({"data": data})  # a fork has none of the pages of code, which count as they are used
            open("/proc/self/clear_refs", "w").write("5")  # the largest VmRSS becomes the present one
            before = memory("VmRSS:")
            pipe({"data": data})
            print(memory("VmHWM:") - before, flush=True)
        os._exit(0)
    if os.wait()[1] != 0:
        print("failed", flush=True)
"""


@pytest.fixture(scope="module")
def measuring():
    """A process that decodes each file in a fork of its own, whose memory nothing else has used."""
    if "asan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("AddressSanitizer takes memory of its own for each allocation")
    command = [sys.executable, "-c", MEASURING]
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}  # else the second decoding uses the memory of the first one
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        yield process
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.fixture
def peak_bytes(measuring, tmp_path):
    """peak_bytes(data, color=…) decodes a file in a process of its own; returns the memory that this took."""

    def measure(data: bytes, **params) -> int:
        (tmp_path / "image").write_bytes(data)
        measuring.stdin.write(json.dumps([str(tmp_path / "image"), {"backend": "DecodeMat", **params}]) + "\n")
        measuring.stdin.flush()
        return int(measuring.stdout.readline())

    return measure


OTHER_MEMORY = 6_000_000  # of the process, such as code that is loaded when it first runs


@pytest.mark.parametrize("color", ["bgr", "rgb"])
def test_a_png_with_16_bits_and_alpha_needs_memory_for_two_results(peak_bytes, color):
    assert peak_bytes(png(16), alpha=True, color=color) < 2 * 4 * PIXELS + OTHER_MEMORY


def animated(depth: int) -> bytes:
    """An animation whose second image consists of other bytes."""
    control = [struct.pack(">IIIIIHHBB", number, 2000, 2000, 0, 0, 1, 10, 0, 0) for number in (0, 1)]
    second = struct.pack(">I", 2) + zlib.compress((b"\0" + b"\x60" * (2000 * depth // 2)) * 2000)
    before = chunk(b"acTL", struct.pack(">II", 2, 0)) + chunk(b"fcTL", control[0])
    return png(depth, before=before, after=chunk(b"fcTL", control[1]) + chunk(b"fdAT", second))


@pytest.mark.parametrize("depth", [8, 16])
def test_an_animated_png_needs_memory_for_two_results_and_gives_its_first_image(run, peak_bytes, depth):
    data = animated(depth)
    assert (run("DecodeMat", data=data)["result"] == 7).all()
    assert peak_bytes(data) < 2 * 3 * PIXELS + OTHER_MEMORY


@functools.cache
def picture(channels: int, dtype: type = np.uint8) -> np.ndarray:
    """An image of 2000 x 2000 pixels that compresses well, as some formats take time otherwise."""
    ramp = np.add.outer(np.arange(2000), np.arange(2000)) % 256
    return np.repeat(ramp.astype(dtype)[:, :, None], channels, axis=2)


@functools.cache
def animation(extension: str, channels: int, opacity: int = 255) -> bytes:
    first = picture(channels).copy()
    first[:, :, 3:] = opacity
    frames = cv2.Animation()
    frames.frames = [first, first[::-1].copy()]
    frames.durations = [10, 10]
    return cv2.imencodeanimation(extension, frames)[1].tobytes()


def strip(channels: int, dtype: type) -> bytes:
    """A TIFF file without compression and with a single strip."""
    flags = cv2.IMWRITE_TIFF_COMPRESSION, 1, cv2.IMWRITE_TIFF_ROWSPERSTRIP, 2000
    return cv2.imencode(".tiff", picture(channels, dtype), flags)[1].tobytes()


def masked_bmp(bits: int) -> bytes:
    """A BMP file with 5 bits for each colour."""
    data = cv2.imencode(".bmp", np.zeros((2000, 2000 * bits // 8), np.uint8))[1].tobytes()
    begin = struct.unpack_from("<I", data, 10)[0]
    header = struct.pack("<IiiHHI20xIII", 40, 2000, 2000, 1, bits, 3, 0x7C00, 0x3E0, 0x1F)
    return b"BM" + struct.pack("<8xI", 14 + len(header)) + header + data[begin:]


def limited_gray_avif() -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture(3)[..., 0]).save(file, "AVIF", speed=10, subsampling="4:0:0", range="limited")
    return file.getvalue()


def sycc_jp2() -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture(3)).convert("YCbCr").save(file, "JPEG2000")
    return file.getvalue()


AVIF_FAST = cv2.IMWRITE_AVIF_SPEED, 10
LOSSY = cv2.IMWRITE_WEBP_QUALITY, 80
WITHOUT_SUBSAMPLING = cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444
FILES = {  # and the bytes per pixel that the README promises
    "jpeg": (lambda: cv2.imencode(".jpg", picture(3))[1], 6),
    "progressive": (lambda: cv2.imencode(".jpg", picture(3), (cv2.IMWRITE_JPEG_PROGRESSIVE, 1))[1], 6),
    "all-chroma": (
        lambda: cv2.imencode(".jpg", picture(3), (cv2.IMWRITE_JPEG_PROGRESSIVE, 1, *WITHOUT_SUBSAMPLING))[1],
        9,
    ),
    "png": (lambda: cv2.imencode(".png", picture(3))[1], 6),
    "bmp": (lambda: cv2.imencode(".bmp", picture(3))[1], 6),
    "bmp-masks": (lambda: masked_bmp(16), 16),
    "bmp-masks-32": (lambda: masked_bmp(32), 16),
    "webp": (lambda: cv2.imencode(".webp", picture(3), LOSSY)[1], 6),
    "webp-lossless": (lambda: cv2.imencode(".webp", picture(3))[1], 8),
    "webp-alpha": (lambda: cv2.imencode(".webp", picture(4))[1], 9),
    "webp-lossy-alpha": (lambda: cv2.imencode(".webp", picture(4), LOSSY)[1], 9),
    "webp-animation": (lambda: animation(".webp", 3), 8),
    "webp-animation-alpha": (lambda: animation(".webp", 4, opacity=200), 12),
    "gif": (lambda: cv2.imencode(".gif", picture(3))[1], 14),
    "gif-animation": (lambda: animation(".gif", 4), 14),
    "tiff": (lambda: cv2.imencode(".tiff", picture(3))[1], 6 + 1),  # strips of a few rows
    "tiff-strip": (lambda: strip(3, np.uint8), 6 + 2 * 3),
    "tiff-strip-16": (lambda: strip(4, np.uint16), 6 + 2 * 8),
    "avif": (lambda: cv2.imencode(".avif", picture(3), AVIF_FAST)[1], 24),
    "avif-alpha": (lambda: cv2.imencode(".avif", picture(4), AVIF_FAST)[1], 40),
    "avif-12": (lambda: cv2.imencode(".avif", picture(3, np.uint16), (*AVIF_FAST, cv2.IMWRITE_AVIF_DEPTH, 12))[1], 24),
    "avif-gray-limited": (lambda: limited_gray_avif(), 24),
    "jp2-sycc": (lambda: sycc_jp2(), 19),
    "jp2": (lambda: cv2.imencode(".jp2", picture(3))[1], 19),
    "jp2-alpha": (lambda: cv2.imencode(".jp2", picture(4))[1], 23),
}


@functools.cache
def encoded(name: str) -> bytes:
    return bytes(FILES[name][0]())


@pytest.mark.parametrize("color", ["bgr", "gray"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_needs_no_more_memory_than_the_readme_says(peak_bytes, name, color):
    assert peak_bytes(encoded(name), color=color) < FILES[name][1] * PIXELS + OTHER_MEMORY


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_needs_more_than_max_memory_is_refused_before_decoding(run, name):
    data = encoded(name)
    assert re.search(
        r"^DecodeMat: decoding the [\w ]+ image, 2000 x 2000, needs [\d,]+ bytes of memory, more than max_memory = "
        r"23,999,999; give a smaller image, save the file in another format, or raise max_memory$",
        refused(run, data, max_memory=6 * PIXELS - 1),
    )
    assert run("DecodeMat", {"max_memory": FILES[name][1] * PIXELS}, data=data)["result"].shape == (2000, 2000, 3)


def test_max_memory_must_be_positive():
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "DecodeMat", "max_memory": 0})
    assert 'DecodeMat: "max_memory" must be at least 1, got 0' in str(error.value)


@pytest.mark.parametrize("quality", [80, 101], ids=["lossy", "lossless"])
@pytest.mark.parametrize("color", ["bgr", "rgb", "gray"])
def test_the_first_image_of_a_webp_animation_is_decoded_as_opencv_does(run, color, quality):
    frames = cv2.Animation()
    frames.frames = list(np.random.default_rng(3).integers(0, 256, (2, 61, 47, 3), np.uint8))
    frames.durations = [10, 10]
    data = cv2.imencodeanimation(".webp", frames, (cv2.IMWRITE_WEBP_QUALITY, quality))[1]
    flags = {"bgr": cv2.IMREAD_COLOR_BGR, "rgb": cv2.IMREAD_COLOR_RGB, "gray": cv2.IMREAD_GRAYSCALE}[color]
    expected = cv2.imdecode(data, flags)
    decoded = run("DecodeMat", {"color": color}, data=data.tobytes())["result"].astype(int)
    assert np.abs(decoded - expected).max() <= (1 if color == "gray" else 0)


def test_an_image_larger_than_its_frame_in_a_webp_animation_is_refused_before_decoding(run):
    frames = cv2.Animation()
    frames.frames = [np.zeros((2000, 2000, 3), np.uint8), np.full((2000, 2000, 3), 9, np.uint8)]
    frames.durations = [10, 10]
    data = bytearray(cv2.imencodeanimation(".webp", frames)[1].tobytes())
    for at in (24, 27, data.index(b"ANMF") + 14, data.index(b"ANMF") + 17):  # 5 x 5 pixels: canvas and frame
        data[at : at + 3] = (4).to_bytes(3, "little")
    assert refused(run, bytes(data), max_pixels=25).endswith(" cannot be decoded; the file is truncated or damaged")


@pytest.mark.parametrize("missing", [1, 100, 2000])
def test_a_webp_animation_whose_first_image_ends_early_is_refused(run, missing):
    whole = animation(".webp", 3)
    at = whole.index(b"ANMF")
    end = at + 8 + struct.unpack_from("<I", whole, at + 4)[0]
    assert refused(run, whole[: end - missing]).endswith(" cannot be decoded; the file is truncated or damaged")


@pytest.mark.parametrize("size", [(1, 1), (700, 501)])
def test_the_high_bytes_of_16_bits_are_kept(run, size):
    deep = np.random.default_rng(3).integers(0, 65536, (*size, 4), np.uint16)
    data = cv2.imencode(".png", deep)[1].tobytes()
    expected = (deep >> 8).astype(np.uint8)
    assert np.array_equal(run("DecodeMat", {"alpha": True}, data=data)["result"], expected)
    assert np.array_equal(
        run("DecodeMat", {"alpha": True, "color": "rgb"}, data=data)["result"], expected[:, :, [2, 1, 0, 3]]
    )


@pytest.mark.parametrize("rows", [0, 100, 1999])
def test_a_png_with_16_bits_and_alpha_whose_data_end_early_is_refused(run, rows):
    assert refused(run, png(16, rows=rows), alpha=True).endswith(" cannot be decoded; the file is truncated or damaged")


@pytest.mark.parametrize("missing", [1, 12, 13, 40, 10_000])
def test_a_truncated_png_with_16_bits_and_alpha_is_refused(run, missing):
    assert refused(run, png(16)[:-missing], alpha=True).endswith(" cannot be decoded; the file is truncated or damaged")


# JPEG files whose data end early


def jpeg(*flags: int, height: int = 300, width: int = 400) -> bytes:
    random = np.random.default_rng(5).integers(0, 256, (height, width, 3), np.uint8)
    return cv2.imencode(".jpg", cv2.GaussianBlur(random, (0, 0), 2), flags)[1].tobytes()


PROGRESSIVE = cv2.IMWRITE_JPEG_PROGRESSIVE, 1
RESTARTS = cv2.IMWRITE_JPEG_RST_INTERVAL, 5


def scan_starts(data: bytes) -> list[int]:
    """Return where the data of each scan begin."""
    return [found.end() + struct.unpack_from(">H", data, found.end())[0] for found in re.finditer(rb"\xff\xda", data)]


def with_size(data: bytes, height: int, width: int) -> bytes:
    at = re.search(rb"\xff[\xc0\xc2]", data).end() + 3
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


@pytest.mark.parametrize("flags", [(), PROGRESSIVE])
def test_a_jpeg_that_claims_more_pixels_than_it_has_data_is_refused_before_decoding(run, peak_bytes, flags):
    data = with_size(jpeg(*flags, height=60, width=60), 9999, 9999)
    assert re.fullmatch(
        r"DecodeMat: the JPEG image, 9999 x 9999 in [\d,]+ bytes, has a scan of [\d,]+ bytes, which needs at least "
        r"[\d,]+; the file is truncated or damaged",
        refused(run, data),
    )


@pytest.mark.parametrize("flags", [(), RESTARTS], ids=["", "restarts"])
@pytest.mark.parametrize("part", [0.01, 0.3, 0.9, 0.99])
@pytest.mark.parametrize("end", [b"\xff\xd9", b"", b"\xff\xd9" + b"x" * 50 + b"\xff\xd9"], ids=["end", "cut", "twice"])
def test_a_jpeg_whose_data_end_early_is_refused(run, flags, part, end):
    whole = jpeg(*flags)
    (start,) = scan_starts(whole)
    data = whole[start:-2]
    assert refused(run, whole[:start] + data[: int(len(data) * part)].rstrip(b"\xff") + end).endswith(
        "; the file is truncated or damaged"
    )


def test_a_progressive_jpeg_whose_first_scan_ends_early_is_refused(run):
    whole = jpeg(*PROGRESSIVE, height=800, width=800)
    first, second = scan_starts(whole)[:2]
    marker = whole.index(b"\xff\xc4", first) if b"\xff\xc4" in whole[first:second] else whole.index(b"\xff\xda", first)
    assert "; the file is truncated or damaged" in refused(run, whole[: first + 40] + whole[marker:])


def test_a_progressive_jpeg_without_a_component_is_refused(run):
    whole = jpeg(*PROGRESSIVE)
    header = whole[: re.search(rb"\xff[\xc4\xda]", whole[200:]).start() + 200]
    assert refused(run, header + b"\xff\xd9").endswith(
        "has no data for some of its components; the file is truncated or damaged"
    )


def in_three_scans(left: int | None = None) -> bytes:
    """A sequential JPEG file with a scan for each of its components; the last scan may have only `left` bytes."""
    gray = cv2.imencode(".jpg", np.tile(np.arange(160, dtype=np.uint8), (120, 1)))[1].tobytes()
    frame, (start,) = gray.index(b"\xff\xc0"), scan_starts(gray)
    length = struct.unpack_from(">H", gray, frame + 2)[0]
    parts = b"".join(bytes([number, 0x11, 0]) for number in (1, 2, 3))
    new_frame = b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, 120, 160, 3) + parts
    tables = gray[:frame] + new_frame + gray[frame + 2 + length : gray.index(b"\xff\xda")]
    data = gray[start:-2]
    headers = [bytes([0xFF, 0xDA, 0, 8, 1, number, 0, 0, 63, 0]) for number in (1, 2, 3)]
    return tables + b"".join(header + data for header in headers[:2]) + headers[2] + data[:left] + b"\xff\xd9"


def test_each_scan_of_a_sequential_jpeg_must_have_data(run):
    assert run("DecodeMat", data=in_three_scans())["result"].shape == (120, 160, 3)
    assert refused(run, in_three_scans(left=74)).endswith(
        " has a scan of 74 bytes, which needs at least 75; the file is truncated or damaged"
    )


@pytest.mark.parametrize("height", [1, 8, 17, 120])
@pytest.mark.parametrize("flags", [(), RESTARTS, PROGRESSIVE, (cv2.IMWRITE_JPEG_QUALITY, 5)], ids=str)
def test_a_complete_jpeg_is_decoded_exactly_as_opencv_does(run, flags, height):
    data = jpeg(*flags, height=height, width=33)
    expected = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert np.array_equal(run("DecodeMat", data=data)["result"], expected)
    assert np.array_equal(run("DecodeMat", data=data + b"\xff\xd8 another file \xff\xd9")["result"], expected)


def test_a_complete_jpeg_may_lack_the_marker_of_its_end(run):
    data = jpeg()
    assert np.array_equal(
        run("DecodeMat", data=data[:-2])["result"], cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    )


def test_a_jpeg_with_arithmetic_codes_is_refused(run):
    data = jpeg()
    assert refused(run, data.replace(b"\xff\xc0", b"\xff\xc9", 1)).endswith(
        "uses coding process 9; save it as a baseline or progressive JPEG with Huffman codes"
    )


# Processor time


def with_scans(count: int) -> bytes:
    """A progressive JPEG file whose last scan is repeated, so that it has `count` scans."""
    whole = cv2.imencode(".jpg", np.zeros((64, 64, 3), np.uint8), PROGRESSIVE)[1].tobytes()
    starts = [found.start() for found in re.finditer(rb"\xff\xda", whole)]
    return whole[:-2] + whole[starts[-1] : -2] * (count - len(starts)) + b"\xff\xd9"


def test_the_number_of_scans_is_limited(run):
    assert run("DecodeMat", data=with_scans(50))["result"].shape == (64, 64, 3)
    assert refused(run, with_scans(51)).endswith(
        " bytes, has more than max_scans = 50 scans; save it again or raise max_scans"
    )
    assert run("DecodeMat", {"max_scans": 100}, data=with_scans(100))["result"].shape == (64, 64, 3)
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "DecodeMat", "max_scans": 0})
    assert 'DecodeMat: "max_scans" must be at least 1, got 0' in str(error.value)


# TIFF


@pytest.mark.parametrize("compression", [5, 8, 32773], ids=["lzw", "deflate", "packbits"])
def test_a_compressed_tiff_that_claims_more_pixels_than_it_can_hold_is_refused(run, compression):
    image = np.random.default_rng(0).integers(0, 256, (30, 40), np.uint8)
    whole = bytearray(cv2.imencode(".tiff", image, (cv2.IMWRITE_TIFF_COMPRESSION, compression))[1].tobytes())
    assert np.array_equal(run("DecodeMat", {"color": "gray"}, data=bytes(whole))["result"], image)
    (fields,) = struct.unpack_from("<I", whole, 4)
    for number in range(struct.unpack_from("<H", whole, fields)[0]):
        at = fields + 2 + 12 * number
        if struct.unpack_from("<H", whole, at)[0] in (257, 278):  # the height, and the rows of a strip
            struct.pack_into("<HII", whole, at + 2, 4, 1, 2_000_000)
    assert refused(run, bytes(whole)).endswith(
        "cannot be decoded; the file is truncated or damaged, or its pixel type is not supported (for example, "
        "floating point)"
    )
