"""JPEG files decoded on a GPU by nvJPEG, a batch in one call, by the decoding engines of the GPU where it has them."""

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
from hami_torch._torch import torch


class Header(NamedTuple):
    """What nvJPEG reads in a file before it decodes it; it writes as many pixels as it says here."""

    width: int
    height: int
    orientation: int  # of EXIF, 1 … 8; 1 if the file has none
    batched: bool  # whether it can be decoded in one call with others


class Group(NamedTuple):
    """Pictures of equal size and orientation."""

    members: list[int]  # which of the files they are
    pictures: torch.Tensor  # uint8 N x C x H x W, as stored
    orientation: int


class Decoders:
    """The decoders of one device, which all instances share: each decodes one batch at a time.

    They are kept when the last instance is closed: to make the first takes more than half a second, each other one a
    fifth of a second.
    """

    MOST = 4  # three keep the engines of an H100 busy; each takes 20 MB of its memory and more

    def __init__(self, library: Any, device: torch.device) -> None:
        """Make the first decoder; raises RuntimeError if that cannot be."""
        self._library = library
        self._device = device
        self._idle: queue.SimpleQueue[Decoder] = queue.SimpleQueue()  # the one that ended first is lent first
        self._lock = threading.Lock()  # guards _users and _made
        self._users = self._made = 0
        self._make()

    def join(self) -> None:
        """Count one more instance that decodes, and make a decoder for it as long as there are few."""
        with self._lock:
            if self._made < min(self._users + 1, self.MOST):
                self._make()
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1

    @contextmanager
    def lend(self) -> Iterator[Decoder]:
        """Wait for a decoder, and have the device current while it is used."""
        decoder = self._idle.get()
        try:
            with torch.cuda.device(self._device):
                yield decoder
        finally:
            self._idle.put(decoder)

    def _make(self) -> None:
        with torch.cuda.device(self._device):
            self._idle.put(Decoder(self._library, self._device))
        self._made += 1


class Decoder:
    """Decodes in order with the current stream; for one thread at a time."""

    def __init__(self, library: Any, device: torch.device) -> None:
        self._library = library
        self._device = device
        # With one handle for all decoders, and one state for files decoded together and alone, nvJPEG 13.0 failed now
        # and then with ALLOCATOR_FAILURE on an H100.
        self._handle, self._parsed = c_void_p(), c_void_p()
        self._together, self._alone = c_void_p(), c_void_p()
        status = library.nvjpegCreateEx(nvjpeg.BACKEND_HARDWARE, None, None, 0, byref(self._handle))
        if status not in (nvjpeg.SUCCESS, nvjpeg.ALLOCATOR_FAILURE):  # this GPU has no engines
            status = library.nvjpegCreateEx(nvjpeg.BACKEND_DEFAULT, None, None, 0, byref(self._handle))
        self._made(status)
        self._made(library.nvjpegJpegStreamCreate(self._handle, byref(self._parsed)))
        self._made(library.nvjpegJpegStateCreate(self._handle, byref(self._together)))
        self._made(library.nvjpegJpegStateCreate(self._handle, byref(self._alone)))
        self._stream = _streams.lease(device)
        self._done = torch.cuda.Event()  # after what was decoded last: until then its buffers are read
        self._width, self._height, self._orientation, self._unsupported = c_uint(), c_uint(), c_int(), c_int()
        self._size = byref(self._width), byref(self._height)

    def _made(self, status: int) -> None:
        if status == nvjpeg.ALLOCATOR_FAILURE:
            raise out_of_memory(self._device, "DecodeTensor", "nvJPEG could not be started")
        if status != nvjpeg.SUCCESS:
            library, name = self._library, nvjpeg.status_name(status)
            raise RuntimeError(f"nvJPEG {library.version} ({library.path}) does not start on {self._device}: {name}")

    def read_header(self, encoded: bytes) -> Header | None:
        """Return what a file says of itself; None if nvJPEG cannot read it."""
        library, parsed = self._library, self._parsed
        if library.nvjpegJpegStreamParseHeader(self._handle, encoded, len(encoded), parsed):
            return None
        if library.nvjpegJpegStreamGetFrameDimensions(parsed, *self._size):
            return None
        self._orientation.value = 1
        library.nvjpegJpegStreamGetExifOrientation(parsed, byref(self._orientation))
        status = library.nvjpegDecodeBatchedSupported(self._handle, parsed, byref(self._unsupported))
        batched = status == nvjpeg.SUCCESS and not self._unsupported.value
        return Header(self._width.value, self._height.value, self._orientation.value or 1, batched)

    def decode(self, files: Mapping[int, tuple[bytes, Header]], color: str) -> list[Group]:
        """Decode files to rgb, bgr or gray; those in no group are what nvJPEG cannot decode.

        The engines write as soon as they are called, whatever is still to be done on the stream that they are called
        with. So that is one with nothing to do: else its memory may be what torch has freed and the GPU still reads.
        """
        if not self._done.query():
            self._done.synchronize()
        outer = _streams.current(self._device)
        if outer.cuda_stream != 0 and outer.query():
            return self._decode(files, color, outer)
        with _streams.using(self._stream):
            groups = self._decode(files, color, self._stream)
        outer.wait_event(self._done)
        for group in groups:
            group.pictures.record_stream(outer)
        return groups

    def _decode(self, files: Mapping[int, tuple[bytes, Header]], color: str, stream: torch.cuda.Stream) -> list[Group]:
        alike: dict[Header, list[int]] = {}
        for at, (_, header) in files.items():
            if header.batched:
                alike.setdefault(header, []).append(at)
        groups = [self._group(members, header, color, stream) for header, members in alike.items()]
        try:
            if groups and not self._decode_together(files, groups, color, stream.cuda_stream):
                groups = []  # one of them is broken: which?
            together = {at for group in groups for at in group.members}
            for at, (encoded, header) in files.items():
                if at not in together:
                    group = self._group([at], header, color, stream)
                    if self._decode_alone(encoded, group, color, stream.cuda_stream):
                        groups.append(group)
        finally:
            self._done.record(stream)
        return groups

    def _group(self, members: list[int], header: Header, color: str, stream: torch.cuda.Stream) -> Group:
        shape = (len(members), nvjpeg.PLANES[color], header.height, header.width)
        pictures = torch.empty(shape, dtype=torch.uint8, device=self._device)
        if not stream.query():  # with cudaMallocAsync as torch's allocator the stream waits for who had the memory
            stream.synchronize()
        return Group(members, pictures, header.orientation)

    def _decode_together(
        self, files: Mapping[int, tuple[bytes, Header]], groups: list[Group], color: str, stream: int
    ) -> bool:
        encoded = [files[at][0] for group in groups for at in group.members]
        data = (c_char_p * len(encoded))(*encoded)
        lengths, images = array("Q", map(len, encoded)), _images(groups)
        form = nvjpeg.OUTPUT_FORMATS[color]
        self._library.nvjpegDecodeBatchedInitialize(self._handle, self._together, len(encoded), 1, form)
        return self._succeeds(
            self._library.nvjpegDecodeBatched,
            (self._handle, self._together, data, lengths.buffer_info()[0], images.buffer_info()[0], stream),
        )

    def _decode_alone(self, encoded: bytes, group: Group, color: str, stream: int) -> bool:
        images = _images([group])
        form = nvjpeg.OUTPUT_FORMATS[color]
        return self._succeeds(
            self._library.nvjpegDecode,
            (self._handle, self._alone, encoded, len(encoded), form, images.buffer_info()[0], stream),
        )

    def _succeeds(self, decode: Callable[..., int], arguments: tuple[Any, ...]) -> bool:
        status = decode(*arguments)
        if status == nvjpeg.ALLOCATOR_FAILURE:
            empty_cache()  # what torch has freed is not free for others
            status = decode(*arguments)
        if status not in nvjpeg.OF_THE_FILE:
            warnings.warn(
                f"DecodeTensor: nvJPEG failed with {nvjpeg.status_name(status)} on {self._device}; "
                "what it did not decode is decoded on the CPU",
                RuntimeWarning,
                stacklevel=2,
            )
        return status == nvjpeg.SUCCESS


def _images(groups: Iterable[Group]) -> array[int]:
    """Return an nvjpegImage_t for each picture: the addresses of up to four planes, and the lengths of their rows."""
    images = array("Q")
    for group in groups:
        count, planes, height, width = group.pictures.shape
        at, size, absent = group.pictures.data_ptr(), height * width, [0] * (4 - planes)
        lengths = [width] * planes + absent
        for _ in range(count):
            images.extend([*range(at, at + planes * size, size), *absent, *lengths])
            at += planes * size
    return images


_lock = threading.Lock()  # guards _decoders
_decoders: dict[torch.device, Decoders | None] = {}


def decoders_of(device: torch.device) -> Decoders | None:
    """Return the decoders of a GPU, made the first time; None where nvJPEG is not installed, or cannot start."""
    with _lock:
        if device not in _decoders:
            _decoders[device] = _start(device)
        return _decoders[device]


def _start(device: torch.device) -> Decoders | None:
    library = nvjpeg.find_library()
    if library is None:
        return None
    try:
        return Decoders(library, device)
    except RuntimeError as error:
        warnings.warn(f"DecodeTensor decodes JPEG files on the CPU: {error}", RuntimeWarning, stacklevel=2)
        return None
