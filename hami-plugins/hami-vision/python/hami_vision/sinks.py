"""Sinks: detections as labels in files of common formats, and frames as a video that browsers play."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import math
import os
import re
import threading
from pathlib import Path
from typing import IO, Any, Literal

import cv2
import hami
import numpy as np
from numpy.typing import NDArray

from hami_vision.detections import NO_ID, Detections
from hami_vision.readers import quiet

_CSV_COLUMNS = ("source", "frame", "time", "id", "class", "name", "score", "x1", "y1", "x2", "y2")
_MAX_STEM = 60  # characters: names of files have at most 255 bytes
_MAX_RATE = 1000  # frames per second: WebM has times in milliseconds
_LONGEST_STILL = 5.0  # seconds of a video in which one frame is repeated; each repetition is encoded


class LabelWriter:
    """Write the objects of pictures as labels. Boxes with NaN are left out, except in JSONL, where NaN is null.

    Several threads may write.

    >>> import tempfile
    >>> from hami_vision import Detections
    >>> with tempfile.TemporaryDirectory() as folder, LabelWriter(folder, "yolo") as labels:
    ...     labels.write(Detections([[0, 0, 50, 40]], [0.5], [2], source="a.png", frame=0), width=100, height=80)
    ...     print(Path(folder, "a_000000.txt").read_text(), end="")
    2 0.25 0.25 0.5 0.5

    Args:
        path: A folder for "yolo", else a file.
        format: "jsonl": a line for each picture. "csv": a line for each object. "yolo": a file for each picture, with
            the class and the centre and size of the box, from 0 to 1. "coco": one JSON file, complete after `close`.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], format: Literal["jsonl", "csv", "yolo", "coco"]) -> None:
        if format not in ("jsonl", "csv", "yolo", "coco"):
            raise ValueError(f'format must be "jsonl", "csv", "yolo" or "coco", got {format!r}')
        self._path, self._format = Path(path), format
        self._images: list[dict[str, Any]] = []
        self._annotations: list[dict[str, Any]] = []
        self._names: dict[int, str] = {}
        self._stems: dict[str, str] = {}  # by source, such as rtsp://left/live and rtsp://right/live
        self._file: IO[str] | None = None
        self._is_closed = False
        self._lock = threading.Lock()  # of the files, and of what COCO collects
        if format == "yolo":
            self._path.mkdir(parents=True, exist_ok=True)
        else:
            self._file = open(self._path, "w", encoding="utf-8", newline="")  # noqa: SIM115 (close closes it)
        if format == "csv":
            csv.writer(self._opened).writerow(_CSV_COLUMNS)

    def write(self, found: Detections, *, width: int, height: int) -> None:
        """Write the objects of the next picture, which is `width` x `height` pixels."""
        if not (width > 0 and height > 0):
            raise ValueError(f"a picture has a width and a height above 0, got {width} x {height}")
        with self._lock:
            if self._is_closed:
                raise ValueError("the labels are closed")
            self._write(found, width, height)

    def _write(self, found: Detections, width: int, height: int) -> None:
        if self._format == "jsonl":
            keys = {"source": found.source, "frame": found.frame, "time": found.time, "width": width, "height": height}
            self._opened.write(json.dumps(hami.to_json({**keys, "objects": found.tolist()})) + "\n")
            self._opened.flush()
            return
        kept = found.finite()
        if self._format == "csv":
            rows = csv.writer(self._opened)
            for i, row in enumerate(kept.tolist()):
                number = NO_ID if kept.ids is None else int(kept.ids[i])
                place = [kept.source, kept.frame, kept.time, "" if number == NO_ID else number]
                rows.writerow([*place, row["class"], row["name"], row["score"], *row["box"]])
            self._opened.flush()
        elif self._format == "yolo":
            lines = []
            for number, box in zip(kept.classes.tolist(), kept.boxes.astype(float), strict=True):
                centre, size = (box[:2] + box[2:]) / 2, box[2:] - box[:2]
                values = [centre[0] / width, centre[1] / height, size[0] / width, size[1] / height]
                lines.append(" ".join([str(number), *(f"{value:.6g}" for value in values)]) + "\n")
            (self._path / f"{self._stem(kept)}.txt").write_text("".join(lines))
        else:
            self._add_to_coco(kept, width, height)

    def _stem(self, found: Detections) -> str:
        """Return a name for the files of a picture: that of its source, and the number of the frame."""
        return f"{stem_of(found.source or 'picture', self._stems)}_{found.frame or 0:06}"

    def _add_to_coco(self, found: Detections, width: int, height: int) -> None:
        image = len(self._images) + 1
        self._images.append({"id": image, "file_name": self._stem(found), "width": width, "height": height})
        for i, (x1, y1, x2, y2) in enumerate(found.boxes.astype(float).tolist()):
            number = int(found.classes[i])
            self._names[number] = found.name_of(i)
            self._annotations.append(
                {
                    "id": len(self._annotations) + 1,  # pycocotools never matches the id 0
                    "image_id": image,
                    "category_id": number,
                    "bbox": [x1, y1, x2 - x1, y2 - y1],
                    "area": (x2 - x1) * (y2 - y1),
                    "iscrowd": 0,
                    "score": float(found.scores[i]),
                }
            )

    @property
    def _opened(self) -> IO[str]:
        assert self._file is not None  # "yolo" has none
        return self._file

    def close(self) -> None:
        """Complete the files.

        Raises:
            OSError: The file cannot be written; nothing is left to close.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            with self._file or contextlib.nullcontext():
                if self._format == "coco":
                    categories = [{"id": number, "name": name} for number, name in sorted(self._names.items())]
                    content = {"images": self._images, "annotations": self._annotations, "categories": categories}
                    json.dump(hami.to_json(content), self._opened)

    def __enter__(self) -> LabelWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stem_of(source: str, taken: dict[str, str]) -> str:
    """Return a name for the files of a source, and note it in `taken`, where no two sources have the same."""
    if source not in taken:
        base = re.sub(r"[^\w.-]+", "_", Path(source).stem)[:_MAX_STEM]
        base = re.sub(r"\.part$", "_part", base)  # how SaveFolder calls files that are not complete
        others = set(taken.values())
        names = itertools.chain([base], (f"{base}_{number}" for number in itertools.count(2)))
        taken[source] = next(name for name in names if name not in others)
    return taken[source]


class VideoWriter:
    """Write frames as a WebM file with VP9, which browsers play. An odd width or height gets a black column or row.

    Several threads may write; the file has the frames in the order of their calls.

    Args:
        path: A file whose name ends with .webm.
        frame_rate: Frames per second, up to 1000.

    Raises:
        ValueError: The name or the rate, or a frame that is not uint8, H x W x 3, or has another size than the first.
        OSError: The file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], frame_rate: float) -> None:
        self._path, self._rate = os.fspath(path), frame_rate
        if not self._path.endswith(".webm"):
            raise ValueError(f"the video is WebM, so its name must end with .webm, got {self._path}")
        if not 0 < frame_rate <= _MAX_RATE:
            raise ValueError(f"frame_rate must be above 0 and at most {_MAX_RATE}, got {frame_rate}")
        self._writer: cv2.VideoWriter | None = None
        self._shape: tuple[int, ...] = ()
        self._frames = 0
        self._last: NDArray[np.uint8] | None = None  # the frame before, where times are given
        self._start: float | None = None  # the time at which the video begins
        self._is_closed = False
        self._lock = threading.Lock()  # of all above: OpenCV ends the process where two threads use a writer

    def write(self, image: NDArray[np.uint8], time: float | None = None) -> None:
        """Write the next frame: uint8, H x W x 3, BGR.

        With `time`, in seconds, the frame before is repeated until then, for five seconds at most; frames that come
        faster than the rate of the video for longer than one period are left out.
        """
        if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.shape[2:] != (3,) or not image.size:
            given = f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
            raise ValueError(f"a frame of a video is uint8, H x W x 3, got {given}")
        if time is not None and not math.isfinite(time):
            raise ValueError(f"the time of a frame must be finite, got {time}")
        with self._lock:
            if self._is_closed:
                raise ValueError("the video is closed")
            if self._writer is None:
                self._writer, self._shape = self._opened(image), image.shape
            if image.shape != self._shape:
                raise ValueError(f"the frames of a video have one shape, {self._shape}, got {image.shape}")
            height, width = image.shape[:2]
            if height % 2 or width % 2:
                image = np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)))
            missing = 0 if time is None else self._missing_before(time)
            if missing < 0:
                return
            before = image if self._last is None else self._last
            for each in [*[before] * missing, image]:
                self._writer.write(each)
            self._frames += missing + 1
            self._last = None if time is None else image.copy()  # a caller may use its memory again

    def _missing_before(self, time: float) -> int:
        """Return how often the frame before is repeated until this one; below 0: this one is left out."""
        if self._start is None or self._last is None:
            self._start = time - self._frames / self._rate
        missing = round((time - self._start) * self._rate) - self._frames
        most = round(_LONGEST_STILL * self._rate)
        if missing > most:  # the video goes on as if the time had not passed
            self._start += (missing - most) / self._rate
        return 0 if missing == -1 else min(missing, most)  # one that comes a little early is shown a little late

    def _opened(self, image: NDArray[np.uint8]) -> cv2.VideoWriter:
        size = image.shape[1] + image.shape[1] % 2, image.shape[0] + image.shape[0] % 2
        with quiet:
            writer = cv2.VideoWriter(self._path, cv2.CAP_FFMPEG, cv2.VideoWriter.fourcc(*"VP90"), self._rate, size)
        if not writer.isOpened():
            raise OSError(f"{self._path} cannot be written as a video of {size[0]} x {size[1]} pixels")
        return writer

    def close(self) -> None:
        """Complete the file.

        Raises:
            OSError: The file does not have all frames, as on a full disk, of which OpenCV only writes to the log.
        """
        with self._lock:
            self._is_closed = True
            if self._writer is None:
                return
            self._writer.release()
            self._writer = None
            if not self._has_last_frame():
                raise OSError(f"{self._path} does not have all {self._frames} frames; is the disk full?")

    def _has_last_frame(self) -> bool:
        with quiet:
            written = cv2.VideoCapture(self._path, cv2.CAP_FFMPEG)
        try:
            written.set(cv2.CAP_PROP_POS_FRAMES, self._frames - 1)  # True also where a file without its end stays at 0
            return written.grab() and int(written.get(cv2.CAP_PROP_POS_FRAMES)) == self._frames
        finally:
            written.release()

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
