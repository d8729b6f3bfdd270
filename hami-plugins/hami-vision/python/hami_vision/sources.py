"""Sources: the frames of many cameras, videos, pictures and generators at once, each read on a thread of its own.

>>> import numpy as np
>>> from hami_vision.sources import Sources
>>> with Sources({"left": [np.zeros((4, 4, 3), np.uint8)] * 2, "right": "missing.webm"}) as sources:
...     print([(frame.source, frame.index) for frame in sources])
...     print(sources.states()["right"].state)
[('left', 0), ('left', 1)]
failed
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import hami
import numpy as np

from hami_vision.readers import Image, Reader, Reading, SourceError, reader_of

State = Literal["connecting", "running", "ended", "failed", "closed"]
_CLOSE_TIMEOUT = 0.9  # seconds that close() waits for reading threads; those that hang in a read end after it
_STEP = 0.001  # seconds between frames whose source says no rising times
_EVERY_CAPACITY = 4  # frames of a source that wait
LONGEST_WAIT = 1e9  # seconds; `threading` raises OverflowError for a few times more, and for infinity
_LONGEST_RETRY = 30.0  # seconds between two openings of a stream that is lost again and again
_started: weakref.WeakSet[Sources] = weakref.WeakSet()  # of this process


@dataclass(frozen=True)
class Frame:
    """One frame: `image` is BGR, H x W x 3, uint8; `time` never goes back, `raw_time` is what the source says."""

    source: str
    index: int
    image: Image
    time: float
    raw_time: float | None

    def request(self) -> dict[str, Any]:
        """Return the request of this frame for the pipelines track and count-people."""
        keys = {"source": self.source, "frame": self.index, "time": self.time}
        return {"data": self.image, "req_id": self.source, "color": "bgr", **keys}


@dataclass(frozen=True)
class SourceState:
    """What a source does: its state and the reason of the last failure; frames read, dropped and refused; losses.

    `waiting` is how many frames `next` has not returned yet.
    """

    state: State = "connecting"
    reason: str = ""
    frames: int = 0
    dropped: int = 0
    refused: int = 0
    losses: int = 0
    waiting: int = 0

    @property
    def is_done(self) -> bool:
        """No further frame comes, but for those that wait."""
        return self.state in ("ended", "failed", "closed")


class Sources:
    """Reads many sources at once. Iterating yields the frames of all, each source in its order and in turns.

    Args:
        sources: Paths, patterns, folders, addresses (rtsp://, http://), numbers of devices, and iterables of arrays
            or of (seconds, array); a dict names them.
        take: "every" frame, where a reader waits for a slow program; or the "latest" one, where older ones are dropped;
            "auto": the latest of streams and devices, and every one of the others.
        max_rate: Most frames per second of each source, by its own times; others are not converted. It has no effect
            on frames without a time, such as pictures.
        retry: Seconds until a stream that is lost is opened again. The time from one opening to the next is doubled
            at each loss, up to 30 seconds; a stream that runs for longer begins again with `retry`. 0: no limit.
        live_retries: How often in a row that happens without a frame before the source has failed; None: no limit.

    A source that fails, hangs or ends does not hold up the others. `close` returns within a second; only the thread
    that reads a source closes it. The end of the program closes sources that are open. Names, which other files get,
    have no passwords of addresses.

    Raises:
        ValueError: A setting is out of range, or two sources have one name.
    """

    def __init__(
        self,
        sources: Iterable[Any] | Mapping[str, Any],
        *,
        take: Literal["every", "latest", "auto"] = "every",
        max_rate: float | None = None,
        retry: float = 0.5,
        live_retries: int | None = None,
    ) -> None:
        if take not in ("every", "latest", "auto"):
            raise ValueError(f'take must be "every", "latest" or "auto", got {take!r}')
        if not retry >= 0 or (max_rate is not None and not max_rate > 0):
            raise ValueError(f"max_rate must be above 0 and retry at least 0, got {max_rate} and {retry}")
        self._take_mode = take
        self._period = 0.0 if max_rate is None else 1 / max_rate
        self._retry, self._live_retries = retry, live_retries
        # Of all that follows, and of the state and frames of each stream; a handler of signals may close in `next`.
        self._lock = threading.RLock()
        self._arrived = threading.Condition(self._lock)  # a frame, or the end of a source
        self._streams: dict[str, _Stream] = {}
        self._removed: list[_Stream] = []  # whose threads may still read
        self._turn = 0
        self._closed = False
        _started.add(self)
        given = (
            sources.items() if isinstance(sources, Mapping) else ((_name_of(i, s), s) for i, s in enumerate(sources))
        )
        try:
            for name, source in given:
                self.add(name, source)
        except BaseException:
            self.close()
            raise

    def add(self, name: str, source: Any) -> None:
        """Start to read another source.

        Raises:
            ValueError: The name is taken, or the sources are closed.
        """
        with self._lock:
            if name in self._streams or self._closed:
                raise ValueError(
                    f"a source {name!r} is there already" if not self._closed else "the sources are closed"
                )
            stream = _Stream(name, self._lock)
            stream.drops = self._take_mode == "latest" or (self._take_mode == "auto" and _is_live(source))
            reading = threading.Thread(target=self._read, args=(stream, source), name=f"source {name}", daemon=True)
            reading.start()  # with the lock: `close` waits for threads that have started
            stream.thread = reading
            self._streams[name] = stream

    def remove(self, name: str) -> None:
        """Stop a source and forget its frames that wait. Raises KeyError for an unknown name."""
        with self._lock:
            stream = self._streams.pop(name)
            stream.stop()
            self._removed = [each for each in [*self._removed, stream] if each.is_alive]
            self._arrived.notify_all()

    def states(self) -> dict[str, SourceState]:
        """Return what each source does now."""
        with self._lock:
            streams = self._streams.items()
            return {name: replace(stream.state, waiting=len(stream.frames)) for name, stream in streams}

    def __iter__(self) -> Iterator[Frame]:
        while (frame := self.next()) is not None:
            yield frame

    def next(self, timeout: float | None = None) -> Frame | None:
        """Return the next frame; None when all sources have ended, or after `timeout` seconds without one."""
        end = None if timeout is None else time.monotonic() + min(timeout, LONGEST_WAIT)
        with self._lock:
            while not self._closed:
                streams = list(self._streams.values())
                for i in range(len(streams)):
                    stream = streams[(self._turn + i) % len(streams)]
                    if stream.frames:
                        frame = stream.frames.popleft()
                        self._turn = (self._turn + i + 1) % len(streams)
                        stream.space.notify()
                        return frame
                if all(stream.is_done for stream in streams):
                    return None
                if not self._arrived.wait(None if end is None else max(0.0, end - time.monotonic())):
                    return None
        return None

    def close(self) -> None:
        """Stop all sources; returns within a second, also where a reading thread hangs."""
        with self._lock:
            self._closed = True
            streams = [*self._streams.values(), *self._removed]
            for stream in streams:
                stream.stop()
            self._arrived.notify_all()
        end = time.monotonic() + _CLOSE_TIMEOUT
        for stream in streams:
            if stream.thread is not None and stream.thread is not threading.current_thread():
                stream.thread.join(max(0.0, end - time.monotonic()))

    def __enter__(self) -> Sources:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, stream: _Stream, source: Any) -> None:
        """Read a source to its end, and a live one again and again. This is the thread of the source."""
        failures, back_off = 0, _BackOff(self._retry)
        while not stream.stopped.is_set():
            before, opened = stream.state.frames, time.monotonic()
            is_live, lost = self._read_until_lost(stream, source)
            if stream.stopped.is_set():  # which also ends the reading of a frame
                break
            if not lost:
                return self._set(stream, state="closed" if stream.stopped.is_set() else "ended")
            failures = 1 if stream.state.frames > before else failures + 1
            if not is_live or (self._live_retries is not None and failures > self._live_retries):
                return self._set(stream, state="failed", reason=lost)
            self._set(stream, state="connecting", reason=lost, losses=stream.state.losses + 1)
            stream.stopped.wait(back_off.wait_after(time.monotonic() - opened))
        return self._set(stream, state="closed")

    def _read_until_lost(self, stream: _Stream, source: Any) -> tuple[bool, str]:
        """Return whether a source is live, and why it has no more frames; an empty text at its end."""
        is_live = _is_live(source)
        try:
            reader = reader_of(source)
            is_live = reader.is_live
            self._set(stream, state="connecting")
            self._read_once(stream, reader)
            lost = f"{stream.name} has ended" if is_live else ""
        except SourceError as error:
            lost = str(error)
        except BaseException as error:  # of a generator of the user: programs wait for the end of this source
            lost = "".join(traceback.format_exception_only(error)).strip()
        return is_live, hami.observe.redact(lost)

    def _read_once(self, stream: _Stream, reader: Reader) -> None:
        stream.clock.restart()
        frames = iter(reader)
        try:
            for reading in frames:
                if stream.stopped.is_set():
                    return
                self._take(stream, reading)
        finally:
            close = getattr(frames, "close", None)
            if close is not None:
                close()

    def _take(self, stream: _Stream, reading: Reading) -> None:
        at = stream.clock.next(reading.time)
        index = stream.state.frames
        refused = stream.state.refused + reading.refused
        self._set(stream, state="running", frames=index + 1, refused=refused)
        if reading.time is not None and at < stream.due - _STEP / 2:
            return self._set(stream, dropped=stream.state.dropped + 1)
        converted = reading.image()
        if converted is None:
            reason = hami.observe.redact(reading.reason) or stream.state.reason
            return self._set(stream, refused=refused + 1, reason=reason)
        stream.due = max(stream.due, at) + self._period if self._period else at
        image = np.asarray(converted)
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            raise SourceError(f"frame {index} is not uint8, H x W x 3, but {image.dtype} {list(image.shape)}")
        frame = Frame(stream.name, index, image, at, reading.time)
        with self._lock:
            capacity = 1 if stream.drops else _EVERY_CAPACITY
            while len(stream.frames) >= capacity and not stream.stopped.is_set():
                if stream.drops:
                    stream.frames.popleft()
                    stream.state = replace(stream.state, dropped=stream.state.dropped + 1)
                else:
                    stream.space.wait()
            if not stream.stopped.is_set():
                stream.frames.append(frame)
                self._arrived.notify_all()  # a single one may have left meanwhile
        return None

    def _set(self, stream: _Stream, **values: Any) -> None:
        with self._lock:
            stream.state = replace(stream.state, **values)
            if stream.is_done:
                self._arrived.notify_all()


class _BackOff:
    """How long a stream that is lost waits, whether it gave frames or not: one that flaps costs little work."""

    def __init__(self, retry: float) -> None:
        self._retry = retry
        self._interval = retry  # seconds between two openings

    def wait_after(self, ran: float) -> float:
        """Return the seconds until the next opening of a stream that was lost so long after its opening."""
        if ran >= _LONGEST_RETRY:
            self._interval = self._retry
        wait = max(self._retry, self._interval - ran)
        self._interval = min(max(_LONGEST_RETRY, self._retry), 2 * self._interval)
        return min(wait, LONGEST_WAIT)


class _Clock:
    """Times that never go back, of raw times that may be missing, repeat, jump back or begin again."""

    def __init__(self) -> None:
        self._last = -math.inf
        self._offset = 0.0

    def restart(self) -> None:
        """The source was opened again: its times begin again, and ours go on."""
        if self._last > -math.inf:
            self._offset = self._last + _STEP

    def next(self, raw: float | None) -> float:
        if raw is None or not math.isfinite(raw):
            self._last = 0.0 if self._last == -math.inf else self._last + _STEP
            return self._last
        if raw + self._offset <= self._last:
            self._offset = self._last + _STEP - raw
        self._last = raw + self._offset
        return self._last


class _Stream:
    """One source, its thread, and its frames that wait."""

    def __init__(self, name: str, lock: threading.RLock) -> None:
        self.name = name
        self.space = threading.Condition(lock)  # for another frame
        self.frames: deque[Frame] = deque()
        self.state = SourceState()
        self.stopped = threading.Event()
        self.drops = False  # older frames for newer ones
        self.thread: threading.Thread | None = None
        self.clock = _Clock()
        self.due = -math.inf  # the time of the next frame that `max_rate` lets through

    @property
    def is_done(self) -> bool:
        return self.state.is_done

    @property
    def is_alive(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    def stop(self) -> None:
        """Call it with the lock."""
        self.stopped.set()
        self.frames.clear()
        self.space.notify_all()


def _name_of(index: int, source: Any) -> str:
    is_named = isinstance(source, (str, int)) or hasattr(source, "__fspath__")
    return hami.observe.redact(str(source)) if is_named else f"source{index}"


def _is_live(source: Any) -> bool:
    is_address = isinstance(source, int) or (isinstance(source, str) and "://" in source)
    return is_address or getattr(source, "is_live", False) is True


@atexit.register
def _close_all() -> None:
    """Close what is open: a thread that returns from OpenCV while Python ends would abort the process."""
    for sources in list(_started):
        sources.close()


os.register_at_fork(after_in_child=_started.clear)  # whose threads only the parent has
