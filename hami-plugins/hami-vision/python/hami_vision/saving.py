"""SaveFolder: results of many sources in one folder, as annotated videos or pictures and as labels; a rerun goes on."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import hami
import numpy as np

from hami_vision.detections import Detections
from hami_vision.drawing import annotate
from hami_vision.sinks import LabelWriter, VideoWriter, stem_of
from hami_vision.sources import Frame

_RUN = "run.json"  # the settings, and the sources whose results are complete
_DEFAULT_RATE = 25.0  # frames per second of a video whose times say none
_RATES = (1.0, 120.0)  # frames per second that are believed
_LOWEST_VARIABLE = 10.0  # frames per second of a video whose first frames do not follow each other at one rate
_FIRST = 4  # frames whose times say the rate of a video
_ROUNDING = 0.002  # seconds; many files have times in milliseconds


class SaveFolder:
    """Write the results of each source, named after it: `NAME.jsonl`, and `NAME.webm` or pictures `NAME_000000.png`.

    A result has objects for the labels if it is Detections, or the dict of CountObjects. Frames with a time of their
    own make a video, in which each is shown at its time; others are pictures. Frames of another size than the first
    are scaled to it in the video. Until a source is complete, its video and labels are called `NAME.part.…`, so
    that a run that was interrupted is seen: they are closed and can be opened, and the next run makes them again.
    Several threads may write; a second SaveFolder of the same folder is refused until the first one is closed, where
    the file system can lock a folder.

    Args:
        path: The folder; made if it is missing.
        settings: What the results depend on, such as the pipeline and its model. A folder with other ones is refused.

    Raises:
        ValueError: The folder has results of other settings.
        OSError: It cannot be written, another run writes it, or its `run.json` is not that of such a folder.
    """

    def __init__(self, path: str | os.PathLike[str], settings: Mapping[str, Any] | None = None) -> None:
        self._path, self._settings = Path(path), hami.to_json(dict(settings or {}))
        self._path.mkdir(parents=True, exist_ok=True)
        self._is_closed = False
        self._lock = threading.Lock()  # of all above, and of the three dicts
        self._ending = threading.RLock()  # of one that completes a source or closes the folder
        self._open: dict[str, _Results] = {}
        self._complete: dict[str, Any] = {}
        self._stems: dict[str, str] = {}
        self._unlock = weakref.finalize(self, _release, _locked(self._path), os.getpid())
        try:
            self._read_run()
        except BaseException:
            self._unlock()
            raise

    def _read_run(self) -> None:
        file = self._path / _RUN
        if file.exists():
            try:
                before = json.loads(file.read_text("utf-8"))
                settings, self._complete = before["settings"], before["complete"]
                self._stems = {source: each["name"] for source, each in self._complete.items()}
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise OSError(f"{file} does not say which results are complete; use another folder") from error
            if settings != self._settings:
                raise ValueError(
                    f"{self._path} has results of other settings, {json.dumps(settings)}; use another folder"
                )

    def is_complete(self, source: str) -> bool:
        """Return whether a run before has completed a file that has not changed since."""
        found = self._complete.get(source)
        return found is not None and found["file"] is not None and found["file"] == _stamp(source)

    def has_failed(self, source: str) -> bool:
        """Return whether a result of a source that is not complete could not be written."""
        with self._lock:
            return source in self._open and self._open[source].has_failed

    def __call__(self, frame: Frame, result: Any) -> None:
        """Write one result.

        Raises:
            OSError: It cannot be written.
            ValueError: The folder was closed: from then on it belongs to the next run.
        """
        with self._lock:
            if self._is_closed:
                raise ValueError("the folder of the results is closed")
            if frame.source not in self._open:
                stem, stamp = stem_of(frame.source, self._stems), _stamp(frame.source)
                self._open[frame.source] = _Results(self._path, stem, stamp)
            results = self._open[frame.source]
        try:
            results.write(frame, result)
        except BaseException:
            results.has_failed = True
            raise

    def complete(self, source: str) -> None:
        """Close the files of a source that has ended, and give them their names.

        Raises:
            OSError: The files do not have all results, as on a full disk.
        """
        with self._ending:
            with self._lock:
                results = self._open.pop(source, None)
            if results is not None:
                self._complete_files(source, results)

    def _complete_files(self, source: str, results: _Results) -> None:
        results.close()
        if results.has_failed:
            raise OSError(f"the files of {source} do not have all results, because one could not be written")
        results.rename()
        with self._lock:
            self._complete[source] = {"name": self._stems[source], "file": results.stamp}
            content = {"settings": self._settings, "complete": self._complete}
            new = self._path / f"{_RUN}.part"
            new.write_text(json.dumps(content, indent=1), "utf-8")
            new.replace(self._path / _RUN)

    def close(self) -> None:
        """Close the files of sources that are not complete; each is a valid file.

        Raises:
            OSError: As `complete` does.
        """
        with self._lock:
            self._is_closed = True
        with self._ending:
            with self._lock:
                unfinished = list(self._open.values())
                self._open.clear()
            try:
                with contextlib.ExitStack() as closing:
                    for results in unfinished:
                        closing.callback(results.close)
            finally:
                self._unlock()

    def __enter__(self) -> SaveFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Results:
    """The files of one source."""

    def __init__(self, folder: Path, stem: str, stamp: list[int] | None) -> None:
        self._folder, self._stem = folder, stem
        self.stamp = stamp  # of the source, when its first result came
        self.has_failed = False
        self._lock = threading.Lock()  # of all that follows
        for old in (folder / f"{stem}.part.jsonl", folder / f"{stem}.part.webm"):
            old.unlink(missing_ok=True)
        self._labels = LabelWriter(folder / f"{stem}.part.jsonl", "jsonl")
        self._video: VideoWriter | None = None
        self._size: tuple[int, ...] = (0, 0)  # width and height of the video, those of its first frame
        self._first: list[tuple[Frame, Any]] = []  # until they say the rate
        self._is_closed = False

    def write(self, frame: Frame, result: Any) -> None:
        height, width = frame.image.shape[:2]
        found = result.get("detections") if isinstance(result, dict) else result
        with self._lock:
            if self._is_closed:
                raise ValueError(f"the files of {frame.source} are closed")
            if isinstance(found, Detections):
                self._labels.write(found, width=width, height=height)
            self._show(frame, result)

    def _show(self, frame: Frame, result: Any) -> None:
        if frame.raw_time is None:
            file = self._folder / f"{self._stem}_{frame.index:06}.png"
            if not cv2.imwrite(str(file), annotate(result, frame.image)):
                raise OSError(f"{file} cannot be written")
        elif self._video is not None:
            self._write(self._video, frame, result)
        else:
            self._first.append((frame, result))
            if len(self._first) == _FIRST:
                self._begin_video()

    def _begin_video(self) -> None:
        first, self._first = self._first, []
        rate = _rate_of([frame.time for frame, _ in first])
        self._size = first[0][0].image.shape[1::-1]
        self._video = VideoWriter(self._folder / f"{self._stem}.part.webm", rate)
        for frame, result in first:
            self._write(self._video, frame, result)

    def _write(self, video: VideoWriter, frame: Frame, result: Any) -> None:
        image = annotate(result, frame.image)
        if image.shape[1::-1] != self._size:  # such as of a camera that was set to another size
            image = cv2.resize(image, self._size, interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False)
        video.write(image, frame.time)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            with contextlib.ExitStack() as closing:
                closing.callback(self._labels.close)
                try:
                    if self._first:
                        self._begin_video()
                finally:
                    if self._video is not None:
                        closing.callback(self._video.close)

    def rename(self) -> None:
        for suffix in ("webm", "jsonl"):
            part = self._folder / f"{self._stem}.part.{suffix}"
            if part.exists():
                part.replace(self._folder / f"{self._stem}.{suffix}")


def _rate_of(times: list[float]) -> float:
    """Return the frames per second of a video that begins with these times.

    If it is variable, it is one at which few frames are left out: that of the two that are closest to each other.
    """
    steps = [after - before for before, after in itertools.pairwise(times)]
    if not steps or min(steps) <= 0:
        return _DEFAULT_RATE
    is_constant = max(steps) - min(steps) <= _ROUNDING
    rate = len(steps) / sum(steps) if is_constant else max(1 / min(steps), _LOWEST_VARIABLE)
    return rate if _RATES[0] <= rate <= _RATES[1] else _DEFAULT_RATE


def _locked(folder: Path) -> int:
    """Return a descriptor of a folder that no other run has, also of another process.

    Raises:
        OSError: Another run has it.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise OSError(f"another run is writing to {folder}; wait for its end, or use another folder") from error
    except OSError:  # a file system without locks
        pass
    return descriptor


def _release(descriptor: int, pid: int) -> None:
    """Give a folder to the next run. A forked child has the descriptor too, and would keep the lock, or end it."""
    if os.getpid() == pid:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _stamp(source: str) -> list[int] | None:
    """Return what changes with a file, or those of a folder: their number, size and newest time.

    None: a stream and the like, which is never the same again.
    """
    try:
        places = list(os.scandir(source)) if os.path.isdir(source) else [source]
        found = [os.stat(place) for place in places]
    except OSError:
        return None
    return [len(found), sum(each.st_size for each in found), max((each.st_mtime_ns for each in found), default=0)]
