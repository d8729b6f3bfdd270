"""Readers: the frames of one file, folder, stream, device or generator, read on the thread that iterates."""

from __future__ import annotations

import glob
import os
import re
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import cv2
import hami
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
PICTURES = (".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".jp2", ".png", ".tif", ".tiff", ".webp")
_TIMEOUT = 5000  # milliseconds for which OpenCV waits for a stream to open, and for each packet
_REFUSED_IN_A_ROW = 16  # packets; a file or stream that has ended refuses every read
_FREE_FRAMES = 32  # of each size whose memory is kept, at most, while a video of that size is read
_QUICK = 0.5  # seconds; a stream that refuses a read later than that sends nothing any more
# Otherwise OpenCV opens and closes the videos of all threads one after the other, and an address that hangs holds up
# every other source. Its FFmpeg needs no lock. OpenCV reads this at each opening; users may have set it.
os.environ.setdefault("OPENCV_FFMPEG_IS_THREAD_SAFE", "1")


class SourceError(Exception):
    """A source cannot be read: the reason."""


@dataclass
class Reading:
    """One frame before it is converted.

    Attributes:
        image: Called for frames that are wanted; returns an array, or None if it cannot be converted.
        time: Seconds from the start, as the source says; None if it does not.
        refused: Packets before it that could not be decoded.
        reason: Why it cannot be converted, where the reader knows that.
    """

    image: Callable[[], Any]
    time: float | None = None
    refused: int = 0
    reason: str = ""


class _Quiet:
    """Keeps back the warnings of OpenCV while a thread opens a video. Levels that a user has set stay.

    One warning for each opening says that the lock is off, and the others repeat why a source fails.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opening = 0  # threads
        self._lowered = False

    def reset_after_fork(self) -> None:
        """Warn again in a forked child, in which no thread opens a video or holds the lock."""
        if self._lowered:
            cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_WARNING)
        self._lock, self._opening, self._lowered = threading.Lock(), 0, False

    def __enter__(self) -> None:
        with self._lock:
            self._opening += 1
            if cv2.utils.logging.getLogLevel() == cv2.utils.logging.LOG_LEVEL_WARNING:  # what OpenCV begins with
                cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_ERROR)
                self._lowered = True

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._opening -= 1
            if self._lowered and not self._opening:
                cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_WARNING)
                self._lowered = False


quiet = _Quiet()
os.register_at_fork(after_in_child=quiet.reset_after_fork)


class Reader:
    """One source. `is_live` is true for a stream or device: its end is a loss, after which it is opened again."""

    is_live = False

    def __iter__(self) -> Iterator[Reading]:
        """Open the source and yield its frames; close it where it was opened.

        Raises:
            SourceError: It cannot be opened.
        """
        raise NotImplementedError


class VideoReader(Reader):
    """A video file, a stream or a device, decoded by OpenCV's FFmpeg."""

    def __init__(self, place: str | int) -> None:
        self._place = place
        self.is_live = isinstance(place, int) or "://" in place

    def __iter__(self) -> Iterator[Reading]:
        if not self.is_live and not os.path.exists(self._place):
            raise SourceError(f"the file {self._place} does not exist")
        options = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, _TIMEOUT, cv2.CAP_PROP_READ_TIMEOUT_MSEC, _TIMEOUT]
        with quiet:
            if isinstance(self._place, int):
                video = cv2.VideoCapture(self._place)
            else:
                video = cv2.VideoCapture(self._place, cv2.CAP_FFMPEG, options)
        try:
            if not video.isOpened():
                device = "device " * isinstance(self._place, int)
                raise SourceError(f"{device}{self._place} cannot be opened as a video")
            refused, pool = 0, _Pool()
            while refused < _REFUSED_IN_A_ROW:
                start = monotonic()
                if not video.grab():
                    if self.is_live and monotonic() - start > _QUICK:
                        return
                    refused += 1
                    continue
                milliseconds = video.get(cv2.CAP_PROP_POS_MSEC)
                yield Reading(partial(pool.retrieve, video), milliseconds / 1000, refused)
                refused = 0
        finally:
            video.release()


_free_frames: weakref.WeakValueDictionary[tuple[int, ...], deque[Image]] = weakref.WeakValueDictionary()  # by shape


class _Pool:
    """Memory for the frames of one video: new memory for each costs a fault of the kernel for each of its pages.

    Videos of one size share it, so that fewer frames have memory at a time.
    """

    def __init__(self) -> None:
        self._free: deque[Image] = deque()  # other threads append and pop
        self._shape: tuple[int, ...] = (0,)  # of the frame before

    def retrieve(self, video: cv2.VideoCapture) -> Any:
        """Convert the frame that was grabbed; its memory is used again when no array over it is left."""
        memory = self._next()
        converted, image = video.retrieve(memory if memory.size else None)
        if not converted:  # OpenCV returns the memory as it was: a frame before, or nothing
            if memory.size:
                self._free.append(memory)
            return None
        if image is None or image is not memory:  # the first one, or one of another shape
            self._shape = (0,) if image is None else image.shape
            self._free = _free_frames.setdefault(self._shape, deque(maxlen=_FREE_FRAMES))
            return image
        return np.asarray(_Borrowed(memory, self._free))

    def _next(self) -> Image:
        try:
            return self._free.pop()
        except IndexError:
            return np.empty(self._shape, np.uint8)


class _Borrowed:
    """The owner of the memory of all arrays that are made of it; with the last one, the memory is free again."""

    def __init__(self, memory: Image, free: deque[Image]) -> None:
        self.__array_interface__ = memory.__array_interface__
        self._memory, self._free = memory, weakref.ref(free)  # a frame that is kept for long keeps no others

    def __del__(self) -> None:
        if (free := self._free()) is not None:
            free.append(self._memory)


class PictureReader(Reader):
    """Picture files, in the order of their names. One that DecodeMat refuses has no image.

    Raises:
        SourceError: No file could be decoded.
    """

    def __init__(self, files: list[str]) -> None:
        self._files = files

    def __iter__(self) -> Iterator[Reading]:
        decoded, reason = 0, ""
        with hami.pipe({"backend": "DecodeMat"}) as decode:
            for file in self._files:
                image = None
                try:
                    image = decode({"data": Path(file).read_bytes()})["result"]
                    decoded += 1
                except (hami.Error, OSError) as error:
                    reason = f"{file}: {str(error).splitlines()[0]}"
                yield Reading(partial(_same, image), reason=reason)
        if not decoded:
            raise SourceError(reason)


class ArrayReader(Reader):
    """An iterable of arrays H x W x 3, or of pairs of a time in seconds and an array."""

    def __init__(self, frames: Iterable[Any]) -> None:
        self._frames = frames

    def __iter__(self) -> Iterator[Reading]:
        for each in self._frames:
            time, image = each if isinstance(each, tuple) else (None, each)
            yield Reading(partial(np.array, image), time)  # a copy: a generator may use its memory again


def _same(image: Any) -> Any:
    return image


def reader_of(source: Any) -> Reader:
    """Return the reader of a path, pattern, folder, address, number of a device, or iterable of arrays.

    Raises:
        SourceError: No reader takes it.
    """
    if isinstance(source, Reader):
        return source
    if isinstance(source, int):
        return VideoReader(source)
    if isinstance(source, (str, os.PathLike)):
        return _reader_of_path(os.fspath(source))
    if isinstance(source, Iterable):
        return ArrayReader(source)
    raise SourceError(f"a source is a path, an address, a device or an iterable of arrays, got {type(source).__name__}")


def _reader_of_path(path: str) -> Reader:
    if re.match(r"[A-Za-z][\w+.-]*://", path):
        return VideoReader(path)
    if os.path.isdir(path):
        return _pictures(path, (str(file) for file in Path(path).iterdir()))
    if not os.path.exists(path) and glob.has_magic(path):
        return _pictures(path, glob.iglob(path))
    return PictureReader([path]) if path.lower().endswith(PICTURES) and os.path.exists(path) else VideoReader(path)


def _pictures(place: str, files: Iterable[str]) -> Reader:
    found = sorted(file for file in files if file.lower().endswith(PICTURES))
    if not found:
        raise SourceError(f"{place} has no pictures ({', '.join(PICTURES)}); name videos one by one")
    return PictureReader(found)
