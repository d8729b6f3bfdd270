"""A fake libnvjpeg with the same functions: it decodes with Pillow into CPU memory."""

from __future__ import annotations

import ctypes
import io
from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from PIL import Image

from hami_torch._nvjpeg import DecoderPool
from hami_torch._nvjpeg_library import BACKEND_HARDWARE
from hami_torch.decode_tensor import DecodeTensor

BAD_JPEG, JPEG_NOT_SUPPORTED, ALLOCATOR_FAILURE, ARCH_MISMATCH = 3, 4, 5, 7
_MODES = {2: "L", 3: "RGB", 4: "RGB"}


class nvjpegImage(ctypes.Structure):
    _fields_ = (("channel", ctypes.c_void_p * 4), ("pitch", ctypes.c_size_t * 4))


class FakeNvjpeg:
    """The functions of libnvjpeg in use. `batches` has the size of each batch, `alone` counts files decoded alone."""

    version = "13.0.0"
    path = "libnvjpeg.so.13"

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.alone = 0
        self.broken: set[bytes] = set()  # files whose data nvJPEG cannot decode
        self.handles = 0
        self.has_hardware = True  # whether this GPU has hardware decoders
        self.backends: list[int] = []
        self.flags: list[int] = []
        self.start_status = 0
        self.out_of_memory = 0  # number of further decode calls that fail for lack of memory
        self._parsed: Image.Image
        self._output = 0

    def nvjpegCreateEx(self, backend, device_allocator, pinned_allocator, flags, handle) -> int:
        self.backends.append(backend)
        self.flags.append(flags)
        if backend == BACKEND_HARDWARE and not self.has_hardware:
            return ARCH_MISMATCH
        self.handles += 1
        handle._obj.value = self.handles
        return self.start_status

    def nvjpegJpegStateCreate(self, handle, state) -> int:
        return 0

    def nvjpegJpegStreamCreate(self, handle, parsed) -> int:
        return 0

    def nvjpegJpegStreamParseHeader(self, handle, data, length, parsed) -> int:
        try:
            self._parsed = Image.open(io.BytesIO(data[:length]))
        except OSError:
            return BAD_JPEG
        return 0

    def nvjpegJpegStreamGetFrameDimensions(self, parsed, width, height) -> int:
        width._obj.value, height._obj.value = self._parsed.size
        return 0

    def nvjpegJpegStreamGetExifOrientation(self, parsed, orientation) -> int:
        orientation._obj.value = self._parsed.getexif().get(0x0112, 0)
        return 0

    def nvjpegDecodeBatchedSupported(self, handle, parsed, unsupported) -> int:
        alone = self._parsed.mode == "CMYK" or "progressive" in self._parsed.info
        unsupported._obj.value = 2 if alone else 0
        return 0

    def nvjpegDecodeBatchedInitialize(self, handle, state, count, threads, output) -> int:
        self._count, self._output = count, output
        return 0

    def nvjpegDecodeBatched(self, handle, state, data, lengths, images, stream) -> int:
        count = self._count
        files = (ctypes.c_void_p * count).from_buffer(data)
        sizes = (ctypes.c_size_t * count).from_address(lengths)
        planes = (nvjpegImage * count).from_address(images)
        encoded = [ctypes.string_at(file, size) for file, size in zip(files, sizes, strict=True)]
        self.batches.append(count)
        return max(self._write(*each, self._output) for each in zip(encoded, planes, strict=True))

    def nvjpegDecode(self, handle, state, data, length, output, image, stream) -> int:
        self.alone += 1
        return self._write(data[:length], nvjpegImage.from_address(image), output)

    def _write(self, encoded: bytes, planes: nvjpegImage, output: int) -> int:
        if self.out_of_memory:
            self.out_of_memory -= 1
            return ALLOCATOR_FAILURE
        if encoded in self.broken:
            return BAD_JPEG
        try:
            image = Image.open(io.BytesIO(encoded))
            if image.mode == "CMYK":
                return JPEG_NOT_SUPPORTED
            pixels = np.atleast_3d(np.array(image.convert(_MODES[output])))
        except OSError:
            return BAD_JPEG
        if output == 4:  # BGR
            pixels = pixels[:, :, ::-1]
        for number in range(pixels.shape[2]):
            for row, line in enumerate(np.ascontiguousarray(pixels[:, :, number])):
                ctypes.memmove(planes.channel[number] + row * planes.pitch[number], line.ctypes.data, len(line))
        return 0


@pytest.fixture
def nvjpeg(cuda, monkeypatch) -> Iterator[FakeNvjpeg]:
    """Make DecodeTensor use GPU decoders that write into CPU memory."""
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    kept = lambda tensor, stream: cuda.log.append(f"memory kept for {stream.cuda_stream}")  # noqa: E731
    monkeypatch.setattr(torch.Tensor, "record_stream", kept)
    library, init = FakeNvjpeg(), DecodeTensor.init
    library.decoders = DecoderPool(library, torch.device("cpu"))

    def with_decoders(self, options):
        init(self, options)
        self._decoders = library.decoders
        self._decoders.add_user()

    monkeypatch.setattr(DecodeTensor, "init", with_decoders)
    return library
