"""DecodeTensor on the CPU: formats, colors, EXIF, and what is refused."""

from __future__ import annotations

import io
import sys
import warnings
from types import SimpleNamespace

import hami
import numpy as np
import pytest
import torch
from fake_cuda import DEVICE
from helpers import message
from PIL import Image

from hami_torch import _nvjpeg
from hami_torch._jpeg_header import read_jpeg_header
from hami_torch.decode_tensor import DecodeTensor, _upright


@pytest.mark.parametrize("format", ["PNG", "BMP", "TIFF", "GIF", "WEBP", "JPEG"])
def test_every_format_gives_a_picture_with_a_batch_axis(run, encode, chw, format):
    exact = format not in ("GIF", "WEBP", "JPEG")
    request = run("DecodeTensor", data=encode(format))
    assert request["result"].dtype == torch.uint8
    assert request["result"].shape == (1, 3, 30, 40)
    assert request["color"] == "rgb"
    difference = (request["result"][0].int() - chw.int()).abs().float().mean()
    assert difference <= (0 if exact else 12)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_anything_with_a_buffer_is_taken(run, encode, chw, kind):
    assert torch.equal(run("DecodeTensor", data=kind(encode("PNG")))["result"][0], chw)


def test_bgr_turns_the_channels_around_and_gray_has_one(run, encode, chw):
    bgr = run("DecodeTensor", {"color": "bgr"}, data=encode("PNG"))
    assert torch.equal(bgr["result"][0], chw.flip(0))
    assert bgr["color"] == "bgr"
    assert run("DecodeTensor", {"color": "gray"}, data=encode("PNG"))["result"].shape == (1, 1, 30, 40)


def test_alpha_and_palettes_become_rgb(run, encode):
    rgba = np.full((4, 5, 4), 100, np.uint8)
    assert run("DecodeTensor", data=encode("PNG", pixels=rgba))["result"].shape == (1, 3, 4, 5)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_upright_as_exif_says(run, encode, picture, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = encode("JPEG", exif=exif, quality=95)
    assert read_jpeg_header(memoryview(stored)) == (40, 30, 3, orientation)
    as_stored = run("DecodeTensor", {"exif": False}, data=stored)["result"][0]
    assert as_stored.shape == (3, 30, 40)
    upright = run("DecodeTensor", data=stored)["result"][0]
    # Pillow turned this one; what turns those decoded on the GPU does the same.
    assert torch.equal(_upright(as_stored, orientation), upright)


def test_an_exif_block_that_is_broken_means_upright(encode):
    broken = b"Exif\0\0MM\0*\0\0\0\x08\0\x40"
    assert read_jpeg_header(memoryview(encode("JPEG", exif=broken))) == (40, 30, 3, 1)


def test_every_truncated_jpeg_is_refused_and_never_read_past_its_end(pipe, encode):
    whole = encode("JPEG")
    decode = pipe("DecodeTensor")
    for length in [*range(1, 40), len(whole) // 2, len(whole) - 200]:
        read_jpeg_header(memoryview(whole[:length]))
        with pytest.raises(hami.RequestError):
            decode({"data": whole[:length]})
    assert decode({"data": whole})["result"].shape == (1, 3, 30, 40)


def test_a_truncated_file_says_so(run, encode):
    half = encode("PNG")[:60]
    with pytest.raises(hami.RequestError) as raised:
        run("DecodeTensor", data=half)
    assert message(raised).startswith("DecodeTensor: the PNG picture in 60 bytes cannot be decoded (")
    assert message(raised).endswith("); the file is truncated or damaged")


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_a_picture_over_the_limit_is_refused_from_its_header(run, encode, format):
    with pytest.raises(hami.RequestError) as raised:
        run("DecodeTensor", {"max_pixels": 1199}, data=encode(format))
    assert message(raised) == (f'DecodeTensor: the {format} picture has 40 x 30 pixels, more than "max_pixels" = 1199')


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"", hami.RequestError, "DecodeTensor takes the bytes of an image file, got none"),
        (
            b"plain text",
            hami.RequestError,
            "DecodeTensor takes a JPEG, PNG, WebP, BMP, GIF or TIFF file, "
            "got 10 bytes that start with 70 6c 61 69 6e 20 74 65",
        ),
        ("a.jpg", hami.DataTypeError, "DecodeTensor takes the bytes of an image file, got str"),
    ],
)
def test_what_is_no_file_is_refused(run, data, kind, text):
    with pytest.raises(kind) as raised:
        run("DecodeTensor", data=data)
    assert message(raised) == text


def test_a_broken_file_does_not_fail_its_neighbours(pipe, encode):
    requests = [{"data": encode("JPEG")}, {"data": b"\xff\xd8\xff broken"}, {"data": encode("PNG")}]
    with pytest.raises(hami.BatchError) as raised:
        pipe("DecodeTensor", max=4, batching="max")(requests)
    assert [index for index, _ in raised.value.errors] == [1]
    assert requests[0]["result"].shape == requests[2]["result"].shape == (1, 3, 30, 40)


def test_the_limit_itself_is_checked(pipe):
    with pytest.raises(hami.ConfigError) as raised:
        pipe("DecodeTensor", max_pixels=0)
    assert message(raised) == 'DecodeTensor: "max_pixels" is 1 or more, got 0'


class FakeDecoder:
    """Decodes as nvJPEG would: RGB or gray, as stored."""

    def decode(self, encoded, *, gray):
        return [self._one(data, gray) for data in encoded]

    def _one(self, data, gray):
        try:
            picture = Image.open(io.BytesIO(data)).convert("L" if gray else "RGB")
        except OSError as error:
            return RuntimeError(str(error))
        pixels = torch.from_numpy(np.array(picture))
        return pixels[None] if gray else pixels.permute(2, 0, 1)

    def close(self):
        self.closed = True


@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
def test_what_the_gpu_decodes_is_turned_and_ordered_as_what_the_cpu_decodes(pipe, encode, monkeypatch, color):
    exif = Image.Exif()
    exif[0x0112] = 6
    noise = np.random.default_rng(0).integers(0, 256, (90, 90, 3), dtype=np.uint8)
    broken = encode("JPEG", pixels=noise)[:4000]
    files = [encode("JPEG"), encode("JPEG", exif=exif), broken, encode("PNG"), encode("JPEG")]
    on_cpu = [{"data": file} for file in files]
    with pytest.raises(hami.BatchError):
        pipe("DecodeTensor", max=8, batching="max", color=color)(on_cpu)
    decoder, init = FakeDecoder(), DecodeTensor.init

    def with_decoder(self, options):
        init(self, options)
        self._decoder = decoder

    monkeypatch.setattr(DecodeTensor, "init", with_decoder)
    requests = [{"data": file} for file in files]
    decode = pipe("DecodeTensor", max=8, batching="max", color=color)
    with pytest.raises(hami.BatchError) as raised:
        decode(requests)
    ((index, error),) = raised.value.errors
    assert index == 2
    assert str(error).startswith(f"DecodeTensor: the JPEG picture in {len(files[2])} bytes cannot be decoded (")
    for at in (0, 1, 3, 4):
        assert torch.equal(requests[at]["result"], on_cpu[at]["result"])
        assert requests[at]["color"] == color
    decode.close()
    assert decoder.closed


@pytest.mark.parametrize(
    ("guarded", "idle", "log"),
    [
        (True, True, []),  # nothing reads memory of this stream
        (True, False, ["2 waits for 1", "memory kept for 2"]),
        (False, True, ["0 waits for 1", "memory kept for 0"]),  # other threads work on the default stream too
    ],
)
def test_nvjpeg_writes_only_into_memory_that_nothing_reads(cuda, monkeypatch, guarded, idle, log):
    decoder = _nvjpeg.Decoder(DEVICE)
    monkeypatch.setattr(_nvjpeg, "_decode", lambda files, device, gray: [cuda.tensor(), RuntimeError("broken")])
    if guarded:
        cuda.current = torch.cuda.Stream(DEVICE)
    cuda.current.idle = idle
    assert len(decoder.decode([b"a", b"b"], gray=False)) == 2
    assert cuda.log == log
    decoder.close()


@pytest.mark.parametrize("given", [bytes, bytearray, memoryview])
def test_a_file_is_read_where_it_is_and_kept_as_long_as_that(cuda, monkeypatch, given):
    """A copy of each file would be made with Python's lock held."""
    file = given(bytes(range(200)))
    before = sys.getrefcount(file)
    taken = []
    io = SimpleNamespace(
        ImageReadMode=SimpleNamespace(RGB=0), decode_jpeg=lambda data, mode, device: taken.append(data)
    )
    monkeypatch.setattr(_nvjpeg, "_torchvision_io", lambda: io)
    decoder = _nvjpeg.Decoder(DEVICE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch's of memory that is read-only among them
        decoder.decode([file], gray=False)
    decoder.close()
    assert taken[0].data_ptr() == np.frombuffer(file, np.uint8).ctypes.data
    assert bytes(taken.pop()) == bytes(file)
    assert sys.getrefcount(file) == before
