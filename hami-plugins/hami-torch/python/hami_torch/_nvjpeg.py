"""Decode JPEG files with nvJPEG: a batch in one call, by the hardware decoders of the GPU if it has them."""

from __future__ import annotations

import queue
import threading
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_uint, c_void_p
from typing import Any, NamedTuple

from hami_torch import _nvjpeg_library as nvjpeg
from hami_torch import _streams
from hami_torch._device import empty_cache, out_of_memory
from hami_torch._nvjpeg_library import Library
from hami_torch._torch import torch, torch_untyped


class Header(NamedTuple):
    """What nvJPEG reads from the header of a file. nvJPEG writes as many pixels as the header says."""

    width: int
    height: int
    orientation: int  # EXIF orientation, 1 … 8; 1 if the file has none
    batchable: bool  # whether nvJPEG can decode the file in one call with others


class Group(NamedTuple):
    """Decoded images of equal size and orientation."""

    indexes: list[int]  # of the files
    images: torch.Tensor  # uint8 N x C x H x W, not rotated
    orientation: int


class DecoderPool:
    """The decoders of one device, shared by all instances; each decodes one batch at a time.

    Decoders are kept when the last instance is closed, because creating one is slow: more than 0.5 s for the first and
    about 0.2 s for each further one (measured on an H100).
    """

    # Three keep the hardware of an H100 busy, and eight are slower. Each takes 20 MB of device memory or more.
    MAX_DECODERS = 4

    def __init__(self, library: Library, device: torch.device, flags: int = 0) -> None:
        """Create the first decoder, with `flags` of nvjpegCreateEx; raises RuntimeError if nvJPEG does not start."""
        self._library = library
        self._device = device
        self._flags = flags
        self._idle: queue.SimpleQueue[Decoder] = queue.SimpleQueue()  # lent in the order of their return
        self._lock = threading.Lock()  # guards _users and _decoders
        self._users = self._decoders = 0
        self._add_decoder()

    def add_user(self) -> None:
        """Count one more instance, and create a decoder for it unless there are MAX_DECODERS."""
        with self._lock:
            if self._decoders < min(self._users + 1, self.MAX_DECODERS):
                self._add_decoder()
            self._users += 1

    def remove_user(self) -> None:
        with self._lock:
            self._users -= 1

    @contextmanager
    def borrow(self) -> Iterator[Decoder]:
        """Wait for an idle decoder and lend it; its device is the current one inside the `with` block."""
        decoder = self._idle.get()
        try:
            with torch.cuda.device(self._device):
                yield decoder
        finally:
            self._idle.put(decoder)

    def _add_decoder(self) -> None:
        with torch.cuda.device(self._device):
            self._idle.put(Decoder(self._library, self._device, self._flags))
        self._decoders += 1


class Decoder:
    """Decodes in order with the current stream. Not thread-safe: one thread at a time."""

    def __init__(self, library: Library, device: torch.device, flags: int) -> None:
        self._library = library
        self._device = device
        # Each decoder has its own handle, and separate states for batches and for single files. With one handle for all
        # decoders and one state for both, nvJPEG 13.0 occasionally failed with ALLOCATOR_FAILURE on an H100.
        self._handle, self._parsed = c_void_p(), c_void_p()
        self._batch_state, self._single_state = c_void_p(), c_void_p()
        status = library.nvjpegCreateEx(nvjpeg.BACKEND_HARDWARE, None, None, flags, byref(self._handle))
        if status not in (nvjpeg.SUCCESS, nvjpeg.ALLOCATOR_FAILURE):  # this GPU has no hardware decoders
            status = library.nvjpegCreateEx(nvjpeg.BACKEND_HYBRID, None, None, flags, byref(self._handle))
        self._check_created(status)
        self._check_created(library.nvjpegJpegStreamCreate(self._handle, byref(self._parsed)))
        self._check_created(library.nvjpegJpegStateCreate(self._handle, byref(self._batch_state)))
        self._check_created(library.nvjpegJpegStateCreate(self._handle, byref(self._single_state)))
        self._stream = _streams.lease(device)
        # Recorded after the last decoding. Until it has completed, the states of this decoder and the files are in use.
        self._done: Any = torch_untyped.cuda.Event()
        self._reading: list[bytes] = []
        self._width, self._height, self._orientation, self._unsupported = c_uint(), c_uint(), c_int(), c_int()
        self._size = byref(self._width), byref(self._height)

    def _check_created(self, status: int) -> None:
        if status == nvjpeg.ALLOCATOR_FAILURE:
            raise out_of_memory(self._device, "DecodeTensor", "nvJPEG could not be started")
        if status != nvjpeg.SUCCESS:
            library, name = self._library, nvjpeg.status_name(status)
            raise RuntimeError(f"nvJPEG {library.version} ({library.path}) does not start on {self._device}: {name}")

    def read_header(self, encoded: bytes) -> Header | None:
        """Return the header of a file; None if nvJPEG cannot read it."""
        library, parsed = self._library, self._parsed
        if library.nvjpegJpegStreamParseHeader(self._handle, encoded, len(encoded), parsed):
            return None
        if library.nvjpegJpegStreamGetFrameDimensions(parsed, *self._size):
            return None
        self._orientation.value = 1
        library.nvjpegJpegStreamGetExifOrientation(parsed, byref(self._orientation))
        status = library.nvjpegDecodeBatchedSupported(self._handle, parsed, byref(self._unsupported))
        batchable = status == nvjpeg.SUCCESS and not self._unsupported.value
        return Header(self._width.value, self._height.value, self._orientation.value or 1, batchable)

    def decode(self, files: Mapping[int, tuple[bytes, Header]], color: str) -> list[Group]:
        """Decode files, given by index, to rgb, bgr or gray; files that nvJPEG cannot decode are in no group.

        The hardware decoders write when they are called, before earlier work on their stream is done. If torch has
        reused memory that this work still reads, they would overwrite it. Therefore they get an idle stream.
        """
        if not self._done.query():
            self._done.synchronize()
        outer = _streams.current_stream(self._device)
        if outer.cuda_stream != 0 and outer.query():
            return self._decode(files, color, outer)
        with _streams.use_stream(self._stream):
            groups = self._decode(files, color, self._stream)
        outer.wait_event(self._done)
        for group in groups:
            group.images.record_stream(outer)
        return groups

    def _decode(self, files: Mapping[int, tuple[bytes, Header]], color: str, stream: torch.cuda.Stream) -> list[Group]:
        self._reading = [encoded for encoded, _ in files.values()]
        by_header: dict[Header, list[int]] = {}
        for index, (_, header) in files.items():
            if header.batchable:
                by_header.setdefault(header, []).append(index)
        try:
            groups = self._decode_together(files, list(by_header.items()), color, stream)
            decoded = {index for group in groups for index in group.indexes}
            for index, (encoded, header) in files.items():
                if index not in decoded:
                    group = self._new_group([index], header, color, stream)
                    if self._decode_single(encoded, group, color, stream.cuda_stream):
                        groups.append(group)
        finally:
            self._done.record(stream)
        return groups

    def _decode_together(
        self,
        files: Mapping[int, tuple[bytes, Header]],
        wanted: list[tuple[Header, list[int]]],
        color: str,
        stream: torch.cuda.Stream,
    ) -> list[Group]:
        """Decode groups of files in one call, without files that are broken.

        Each file is decoded by the call that decodes it alone, so that its pixels do not depend on its neighbors.
        """
        if not wanted:
            return []
        groups = [self._new_group(indexes, header, color, stream) for header, indexes in wanted]
        if self._decode_batch(files, groups, color, stream.cuda_stream):
            return groups
        each = [(header, [index]) for header, indexes in wanted for index in indexes]
        if len(each) == 1:
            return []
        del groups
        middle = len(each) // 2  # at least one file is broken: find it in few calls
        return [
            *self._decode_together(files, each[:middle], color, stream),
            *self._decode_together(files, each[middle:], color, stream),
        ]

    def _new_group(self, indexes: list[int], header: Header, color: str, stream: torch.cuda.Stream) -> Group:
        """Allocate the images of a group; the stream is idle afterwards, and with it the states of this decoder."""
        shape = (len(indexes), nvjpeg.PLANES[color], header.height, header.width)
        images = torch.empty(shape, dtype=torch.uint8, device=self._device)
        if not stream.query():  # the allocator cudaMallocAsync makes the stream wait for the previous use of the memory
            stream.synchronize()
        return Group(indexes, images, header.orientation)

    def _decode_batch(
        self, files: Mapping[int, tuple[bytes, Header]], groups: list[Group], color: str, stream: int
    ) -> bool:
        encoded = [files[index][0] for group in groups for index in group.indexes]
        data = (c_char_p * len(encoded))(*encoded)
        lengths, images = array("Q", map(len, encoded)), _image_descriptors(groups)
        output_format = nvjpeg.OUTPUT_FORMATS[color]
        self._library.nvjpegDecodeBatchedInitialize(self._handle, self._batch_state, len(encoded), 1, output_format)
        return self._succeeds(
            self._library.nvjpegDecodeBatched,
            (self._handle, self._batch_state, data, lengths.buffer_info()[0], images.buffer_info()[0], stream),
        )

    def _decode_single(self, encoded: bytes, group: Group, color: str, stream: int) -> bool:
        images = _image_descriptors([group])
        output_format = nvjpeg.OUTPUT_FORMATS[color]
        return self._succeeds(
            self._library.nvjpegDecode,
            (self._handle, self._single_state, encoded, len(encoded), output_format, images.buffer_info()[0], stream),
        )

    def _succeeds(self, decode: Callable[..., int], arguments: tuple[Any, ...]) -> bool:
        status = decode(*arguments)
        if status == nvjpeg.ALLOCATOR_FAILURE:
            _streams.current_stream(self._device).synchronize()  # the call may have begun work with this state
            empty_cache()  # nvJPEG cannot use memory that torch has freed but still caches
            status = decode(*arguments)
        if status not in nvjpeg.FILE_STATUSES:
            warnings.warn(
                f"DecodeTensor: nvJPEG failed with {nvjpeg.status_name(status)} on {self._device}; "
                "the files that it did not decode are decoded on the CPU",
                RuntimeWarning,
                stacklevel=2,
            )
        return status == nvjpeg.SUCCESS


def _image_descriptors(groups: Iterable[Group]) -> array[int]:
    """Return an nvjpegImage_t for each image: four plane addresses, then four row lengths in bytes."""
    descriptors = array("Q")
    for group in groups:
        count, planes, height, width = group.images.shape
        address, plane_size, unused = group.images.data_ptr(), height * width, [0] * (4 - planes)
        row_lengths = [width] * planes + unused
        for _ in range(count):
            plane_addresses = range(address, address + planes * plane_size, plane_size)
            descriptors.extend([*plane_addresses, *unused, *row_lengths])
            address += planes * plane_size
    return descriptors


_lock = threading.Lock()  # guards _pools
_pools: dict[tuple[torch.device, bool], DecoderPool | None] = {}


def decoder_pool(device: torch.device, interpolates: bool = True) -> DecoderPool | None:
    """Return the decoders of a GPU, created on the first call; None if nvJPEG is not installed or does not start.

    Args:
        device: The GPU.
        interpolates: Interpolate subsampled chroma, as libjpeg does, if the library can do so.
    """
    with _lock:
        if (device, interpolates) not in _pools:
            _pools[device, interpolates] = _start(device, interpolates)
        return _pools[device, interpolates]


def _start(device: torch.device, interpolates: bool) -> DecoderPool | None:
    library = nvjpeg.find_library()
    if library is None:
        return None
    if interpolates and not nvjpeg.interpolates(library.version):
        interpolates = False
        warnings.warn(
            f"DecodeTensor: nvJPEG {library.version} repeats subsampled chroma, because it is older than 12.1: files "
            "of 4:2:0 and 4:2:2 differ from those decoded on the CPU by up to 25 levels; install a newer one, or set "
            "chroma = repeat",
            RuntimeWarning,
            stacklevel=2,
        )
    try:
        return DecoderPool(library, device, nvjpeg.INTERPOLATE_CHROMA if interpolates else 0)
    except RuntimeError as error:
        warnings.warn(f"DecodeTensor decodes JPEG files on the CPU: {error}", RuntimeWarning, stacklevel=2)
        return None
