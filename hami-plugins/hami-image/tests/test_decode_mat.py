"""DecodeMat: the formats it decodes, and the errors for all other data."""

from __future__ import annotations

import struct
import sys
import time
import zlib

import cv2
import hami
import numpy as np
import pytest

from hami_image._image_header import ImageHeader, read_header

EXTENSIONS = [".jpg", ".png", ".webp", ".bmp", ".gif", ".tiff"]


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_of(width: int, height: int) -> bytes:
    """A complete PNG file whose header claims a size and whose pixels are one zero byte."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(b"\0"))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


def with_orientation(jpeg: bytes, orientation: int) -> bytes:
    body = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01" + struct.pack(">HHI", orientation, 0, 0)
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + jpeg[2:]


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_decodes_what_opencv_encodes(run, encode, image, extension):
    result = run("DecodeMat", data=encode(extension))["result"]
    assert result.shape == image.shape
    assert result.dtype == np.uint8
    worst = {".jpg": 12, ".webp": 12, ".gif": 20}.get(extension, 0)  # a GIF file has 256 colors
    assert np.abs(result.astype(int) - image).mean() <= worst


def test_decodes_a_scanned_page(run, page):
    result = run("DecodeMat", data=page)["result"]
    assert result.shape == (191, 384, 3)
    assert 100 < result.mean() < 220


@pytest.mark.parametrize(
    "kind",
    [
        bytes,
        bytearray,
        memoryview,
        lambda data: np.frombuffer(data, np.uint8),
        lambda data: memoryview(b"before" + data + b"behind")[6:-6],
    ],
    ids=["bytes", "bytearray", "memoryview", "array", "part"],
)
def test_any_bytes_like_object_is_accepted(run, encode, image, kind):
    assert np.array_equal(run("DecodeMat", data=kind(encode(".png")))["result"], image)


def test_color_sets_the_channel_order(run, encode, image):
    assert np.array_equal(run("DecodeMat", {"color": "rgb"}, data=encode(".png"))["result"], image[:, :, ::-1])
    assert run("DecodeMat", {"color": "gray"}, data=encode(".png"))["result"].shape == (30, 40)


def test_the_exif_orientation_is_applied_unless_exif_is_false(run, encode):
    data = with_orientation(encode(".jpg"), 6)
    assert run("DecodeMat", data=data)["result"].shape == (40, 30, 3)
    assert run("DecodeMat", {"exif": False}, data=data)["result"].shape == (30, 40, 3)


@pytest.mark.parametrize(("extension", "flags"), [(".png", ()), (".webp", (cv2.IMWRITE_WEBP_QUALITY, 101))])
def test_alpha_is_kept_only_if_requested_and_present(run, image, encode, extension, flags):
    bgra = np.dstack([image, np.full((30, 40), 128, np.uint8)])
    data = cv2.imencode(extension, bgra, flags)[1].tobytes()
    assert np.array_equal(run("DecodeMat", {"alpha": True}, data=data)["result"], bgra)
    assert run("DecodeMat", data=data)["result"].shape == (30, 40, 3)
    assert run("DecodeMat", {"alpha": True}, data=encode(extension, *flags))["result"].shape == (30, 40, 3)
    rgba = run("DecodeMat", {"alpha": True, "color": "rgb"}, data=data)["result"]
    assert np.array_equal(rgba, bgra[:, :, [2, 1, 0, 3]])


def test_a_gray_png_with_a_transparent_value_counts_as_a_file_without_alpha(run):
    gray = cv2.imencode(".png", np.full((4, 5), 120, np.uint8))[1].tobytes()
    exif = chunk(b"eXIf", b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0")
    data = gray[:33] + exif + chunk(b"tRNS", b"\0\x78") + gray[33:]
    result = run("DecodeMat", {"alpha": True}, data=data)["result"]
    assert np.array_equal(result, np.full((5, 4, 3), 120))  # and its EXIF orientation is applied


def test_a_file_with_16_bits_per_channel_is_decoded_to_uint8(run):
    deep = np.full((4, 5, 4), 0x8000, np.uint16)
    data = cv2.imencode(".png", deep)[1].tobytes()
    assert run("DecodeMat", data=data)["result"].dtype == np.uint8
    assert run("DecodeMat", {"alpha": True}, data=data)["result"].tolist() == [[[128] * 4] * 5] * 4


def test_a_request_without_data_is_an_error(run):
    with pytest.raises(hami.RequestError) as error:
        run("DecodeMat", image=b"")
    assert str(error.value).splitlines()[0].startswith('DecodeMat: the request has no key "data"; its keys are [')


NOT_BYTES = 'DecodeMat: "data" must be the bytes of an image file, as Path.read_bytes() returns, got '


@pytest.mark.parametrize("data", [None, 7, "page.png", ["bytes"], {"a": 1}])
def test_data_of_a_wrong_type_is_a_data_type_error(run, data):
    with pytest.raises(hami.DataTypeError) as error:
        run("DecodeMat", data=data)
    assert str(error.value).splitlines()[0] == NOT_BYTES + type(data).__name__
    assert isinstance(error.value, TypeError)


def test_a_buffer_that_cannot_be_read_is_a_data_type_error(run):
    released = memoryview(b"page")
    released.release()
    with pytest.raises(hami.DataTypeError) as error:
        run("DecodeMat", data=released)
    assert str(error.value).startswith(NOT_BYTES + "a buffer that cannot be read: ")


@pytest.mark.parametrize("dtype", [object, [("name", object), ("age", int)]])
def test_an_array_of_python_objects_is_a_data_type_error(run, dtype):
    with pytest.raises(hami.DataTypeError) as error:
        run("DecodeMat", data=np.zeros(2, dtype))
    assert str(error.value).splitlines()[0] == NOT_BYTES + "an array of Python objects"


def refused(run, data: bytes, **params) -> str:
    """Return the first line of the RequestError for `data`."""
    with pytest.raises(hami.RequestError) as error:
        run("DecodeMat", params, data=data)
    return str(error.value).splitlines()[0]


@pytest.mark.parametrize("data", [b"", np.zeros(0, np.uint8), np.zeros((0, 3), np.uint8)])
def test_empty_data_is_refused(run, data):
    assert refused(run, data) == 'DecodeMat: "data" is empty (0 bytes); give the bytes of an image file'


def test_bytes_of_another_format_are_refused(run):
    assert refused(run, b"# a text file") == (
        "DecodeMat: \"data\" is not an image file: 13 bytes that start with b'# a text fil'; "
        "give the bytes of a JPEG, PNG, WebP, BMP, GIF, TIFF, AVIF or JPEG 2000 file"
    )


@pytest.mark.parametrize(("width", "height"), [(0, 0), (0, 5), (5, 0)])
def test_an_image_without_pixels_is_refused(run, width, height):
    assert refused(run, png_of(width, height)) == f"DecodeMat: the PNG image is {width} x {height} and has no pixels"


def test_an_image_above_max_pixels_is_refused_by_its_header(run):
    assert refused(run, png_of(10_001, 10_000)) == (
        "DecodeMat: the PNG image is 10001 x 10000 = 100,010,000 pixels, more than max_pixels = 100,000,000; "
        "give a smaller image or raise max_pixels"
    )


def test_an_image_above_the_limit_of_opencv_is_not_called_damaged(run):
    assert refused(run, png_of(40_000, 30_000), max_pixels=2_000_000_000, max_memory=10_000_000_000).endswith(
        "; it is above a limit of OpenCV; raise OPENCV_IO_MAX_IMAGE_PIXELS, OPENCV_IO_MAX_IMAGE_WIDTH or "
        "OPENCV_IO_MAX_IMAGE_HEIGHT in the environment"
    )


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_max_pixels_is_exact_for_every_format(run, encode, extension):
    assert run("DecodeMat", {"max_pixels": 1200}, data=encode(extension))["result"].shape == (30, 40, 3)
    assert "is 40 x 30 = 1,200 pixels, more than max_pixels = 1,199;" in refused(
        run, encode(extension), max_pixels=1199
    )


def segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


SMALL_FRAME = segment(0xC0, struct.pack(">BHHB", 8, 5, 5, 1) + b"\1\x11\0")


@pytest.mark.parametrize(
    ("extra", "claim"),
    [
        (b"\xff\0" + struct.pack(">H", 6), "a stuffed zero is not a segment"),
        (b"\xff\xff\0" + struct.pack(">H", 6), "a stuffed zero after fill bytes is not a segment"),
        (b"\xff\x01\xff\xd0\xff\xd7", "some markers have no length"),
        (b"junk", "junk between segments is skipped"),
    ],
)
def test_max_pixels_is_exact_with_any_bytes_between_the_segments_of_a_jpeg(run, encode, extra, claim):
    whole = encode(".jpg")
    odd = whole[:2] + segment(0xFE, b"") + extra + segment(0xFE, SMALL_FRAME) + whole[2:]
    assert run("DecodeMat", data=odd)["result"].shape == (30, 40, 3), claim
    assert "is 40 x 30 = 1,200 pixels, more than max_pixels = 1,199;" in refused(run, odd, max_pixels=1199)


@pytest.mark.parametrize("extra", [b"\xff\xd8", segment(0xDA, b"\1\1\0\0\x3f\0"), b"\xff\xfe\0\0"])
def test_a_jpeg_with_an_ambiguous_size_is_refused(run, encode, extra):
    whole = encode(".jpg")
    assert "bytes contain no unambiguous image size;" in refused(run, whole[:2] + extra + whole[2:])


SHORT, LONG, LONG8 = 3, 4, 16


def tiff_of(*entries: tuple[int, int, int, int]) -> bytes:
    """A gray TIFF file with these fields (tag, type, count, value), followed by the fields that every file needs."""
    entries += ((258, SHORT, 1, 8), (259, SHORT, 1, 1), (262, SHORT, 1, 1), (277, SHORT, 1, 1))
    pixels = 8 + 2 + 12 * (len(entries) + 3) + 4
    entries += ((273, LONG, 1, pixels), (278, LONG, 1, 30), (279, LONG, 1, 1200))
    table = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + table + bytes(4 + 1200)


def test_the_size_of_a_tiff_file_is_read_from_its_fields(run):
    data = tiff_of((256, SHORT, 1, 40), (257, LONG, 1, 30))
    assert run("DecodeMat", {"max_pixels": 1200}, data=data)["result"].shape == (30, 40, 3)
    assert "is 40 x 30 = 1,200 pixels" in refused(run, data, max_pixels=1199)


@pytest.mark.parametrize("kind", [1, 6, 8, 9, LONG8])
def test_a_tiff_with_a_width_of_an_unsupported_type_is_refused(run, kind):
    data = tiff_of((256, kind, 1, 40), (257, LONG, 1, 30), (256, LONG, 1, 2))
    assert "bytes contain no unambiguous image size;" in refused(run, data)


@pytest.mark.parametrize("tag", [256, 257])
def test_a_tiff_with_two_widths_or_heights_is_refused(run, tag):
    data = tiff_of((256, LONG, 1, 40), (257, LONG, 1, 30), (tag, LONG, 1, 2))
    assert "bytes contain no unambiguous image size;" in refused(run, data)


@pytest.mark.parametrize("offset", [2**63 - 8, 2**63, 2**64 - 1])
def test_a_bigtiff_with_an_offset_beyond_any_file_is_refused(run, offset):
    data = b"II+\0" + struct.pack("<HHQ", 8, 0, offset) + bytes(50)
    assert "bytes contain no unambiguous image size;" in refused(run, data)


def test_a_tile_above_max_pixels_is_refused_even_in_a_small_image(run):
    data = tiff_of((256, LONG, 1, 2), (257, LONG, 1, 2), (322, LONG, 1, 16384), (323, LONG, 1, 8192))
    assert refused(run, data) == (
        "DecodeMat: the TIFF image is 2 x 2, but its tiles are 16384 x 8192 = 134,217,728 pixels, "
        "more than max_pixels = 100,000,000; save the file with smaller tiles or raise max_pixels"
    )


def two_headers_in_a_png(image: np.ndarray) -> bytes:
    return png_of(5, 5)[:33] + cv2.imencode(".png", image)[1].tobytes()[8:]


def a_canvas_smaller_than_the_frame_in_a_webp(image: np.ndarray) -> bytes:
    frame = cv2.imencode(".webp", image)[1].tobytes()[12:]
    canvas = b"VP8X" + struct.pack("<IIHBHB", 10, 0, 4, 0, 4, 0)
    return b"RIFF" + struct.pack("<I", 4 + len(canvas + frame)) + b"WEBP" + canvas + frame


def a_screen_smaller_than_the_frame_in_a_gif(image: np.ndarray) -> bytes:
    whole = cv2.imencode(".gif", image)[1].tobytes()
    return whole[:6] + struct.pack("<HH", 5, 5) + whole[10:]


@pytest.mark.parametrize(
    "make",
    [
        two_headers_in_a_png,
        a_canvas_smaller_than_the_frame_in_a_webp,
        a_screen_smaller_than_the_frame_in_a_gif,
    ],
)
def test_a_file_with_two_sizes_is_not_decoded(run, image, make):
    data = make(image)
    assert read_header(memoryview(data)).size == (5, 5)
    assert ", 5 x 5 in " in refused(run, data, max_pixels=25)


def test_the_height_of_a_bmp_may_be_negative(run, encode, image):
    whole = encode(".bmp")
    data = whole[:22] + struct.pack("<i", -30) + whole[26:]
    assert np.array_equal(run("DecodeMat", {"max_pixels": 1200}, data=data)["result"], image[::-1])
    assert "is 40 x 30 = 1,200 pixels" in refused(run, data, max_pixels=1199)


def test_an_image_larger_than_its_header_says_is_refused(run, encode, monkeypatch):
    monkeypatch.setattr("hami_image.decode_mat.read_header", lambda *_: ImageHeader("JPEG", (5, 5)))
    assert refused(run, encode(".jpg"), max_pixels=25) == (
        "DecodeMat: the decoded JPEG image is 40 x 30, but its header says 5 x 5; "
        "the file is damaged or was made to bypass max_pixels"
    )


@pytest.mark.parametrize("junk", [b"\xff", b"\xff\xd0", b"\0", segment(0xFE, b"")])
def test_a_jpeg_of_junk_is_refused_quickly(junk):
    check_refused_quickly("JPEG", b"\xff\xd8\xff", junk)


def test_a_png_of_empty_chunks_is_refused_quickly():
    check_refused_quickly("PNG", png_of(9, 9)[:33], b"\0\0\0\0zzZz\0\0\0\0")


def check_refused_quickly(name: str, start_of_file: bytes, junk: bytes) -> None:
    data = memoryview(start_of_file + junk * (20_000_000 // len(junk)))
    start = time.thread_time()
    assert read_header(data) == ImageHeader(name, None)
    assert time.thread_time() - start < 0.2  # the usual time is about 0.01 s


@pytest.mark.skipif(sys.platform != "linux", reason="needs the peak memory in the unit of Linux")
def test_a_huge_image_is_refused_without_allocating_memory(run):
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(run, png_of(60_000, 60_000))  # 10 GB of pixels
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB


@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize("part", [0.3, 0.6, 0.9, 0.99])
def test_a_truncated_file_is_refused(run, page, extension, part):
    whole = cv2.imencode(extension, cv2.imdecode(np.frombuffer(page, np.uint8), cv2.IMREAD_COLOR))[1].tobytes()
    assert "; the file is truncated or damaged" in refused(run, whole[: int(len(whole) * part)])


def test_the_error_for_an_unsupported_tiff_names_the_pixel_type_as_a_cause(run):
    whole = cv2.imencode(".tiff", np.zeros((30, 40, 3), np.float32))[1].tobytes()
    assert refused(run, whole) == (
        f"DecodeMat: the TIFF image, 40 x 30 in {len(whole)} bytes, cannot be decoded; "
        "the file is truncated or damaged, or its pixel type is not supported (for example, floating point)"
    )


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_every_prefix_of_the_header_is_refused(run, encode, extension):
    whole = encode(extension)
    with hami.pipe({"backend": "DecodeMat"}) as pipe:
        for length in range(min(60, len(whole) - 1)):
            with pytest.raises(hami.RequestError):
                pipe({"data": whole[:length]})
        assert pipe({"data": whole})["result"].shape == (30, 40, 3)


def test_the_error_for_a_damaged_file_names_its_format(run, encode):
    whole = encode(".png")
    assert refused(run, whole[:-20]) == (
        f"DecodeMat: the PNG image, 40 x 30 in {len(whole) - 20} bytes, cannot be decoded; "
        "the file is truncated or damaged"
    )
    assert refused(run, whole[:10]) == (
        'DecodeMat: "data" starts like a PNG file, but its 10 bytes contain no unambiguous image size; '
        "the file is truncated or damaged"
    )


def test_a_damaged_file_is_decoded_or_refused_and_never_raises_another_error(encode):
    random = np.random.default_rng(1)
    with hami.pipe({"backend": "DecodeMat", "max_pixels": 10_000}) as pipe:
        for extension in EXTENSIONS:
            whole = np.frombuffer(encode(extension), np.uint8)
            for _ in range(60):
                data = whole.copy()
                data[random.integers(0, min(64, len(data)), 3)] = random.integers(0, 256, 3)
                try:
                    mat = pipe({"data": data.tobytes()})["result"]
                except hami.RequestError:
                    continue
                assert mat.shape[0] * mat.shape[1] <= 10_000


def test_a_failed_request_has_no_result_and_the_next_request_succeeds(encode):
    with hami.pipe({"backend": "DecodeMat"}) as pipe:
        request = {"data": b"no image", "result": "stale"}
        with pytest.raises(hami.RequestError):
            pipe(request)
        assert "result" not in request
        assert pipe({"data": encode(".png")})["result"].shape == (30, 40, 3)


def test_an_invalid_parameter_is_a_config_error():
    for params, text in [
        ({"max_pixels": 0}, 'DecodeMat: "max_pixels" must be at least 1, got 0'),
        ({"alpha": True, "color": "gray"}, 'DecodeMat: "alpha" = true requires "color" = bgr or rgb, got gray'),
    ]:
        with pytest.raises(hami.ConfigError) as error:
            hami.pipe({"backend": "DecodeMat", **params})
        assert text in str(error.value)
