"""Sinks: detections as labels in files of common formats, and frames as a video that browsers play."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path
from typing import IO, Any, Literal

import cv2
import hami
import numpy as np
from numpy.typing import NDArray

from hami_vision.detections import NO_ID, Detections

_CSV_COLUMNS = ("source", "frame", "time", "id", "class", "name", "score", "x1", "y1", "x2", "y2")


class LabelWriter:
    """Write the objects of pictures as labels. Boxes with NaN are left out, except in JSONL, where NaN is null.

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
        self._file: IO[str] | None = None
        if format == "yolo":
            self._path.mkdir(parents=True, exist_ok=True)
        else:
            self._file = open(self._path, "w", encoding="utf-8", newline="")  # noqa: SIM115 (close closes it)
        if format == "csv":
            csv.writer(self._opened).writerow(_CSV_COLUMNS)

    def write(self, found: Detections, *, width: int, height: int) -> None:
        """Write the objects of the next picture, which is `width` x `height` pixels."""
        if self._format == "jsonl":
            keys = {"source": found.source, "frame": found.frame, "time": found.time, "width": width, "height": height}
            self._opened.write(json.dumps(hami.to_json({**keys, "objects": found.tolist()})) + "\n")
            self._opened.flush()
            return
        kept = found[np.isfinite(found.boxes).all(1)]
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
            (self._path / f"{_stem(kept)}.txt").write_text("".join(lines))
        else:
            self._add_to_coco(kept, width, height)

    def _add_to_coco(self, found: Detections, width: int, height: int) -> None:
        image = len(self._images) + 1
        self._images.append({"id": image, "file_name": _stem(found), "width": width, "height": height})
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
        if self._file is None:
            raise ValueError("the labels are closed")
        return self._file

    def close(self) -> None:
        """Complete the files."""
        if self._file is None:
            return
        if self._format == "coco":
            categories = [{"id": number, "name": name} for number, name in sorted(self._names.items())]
            content = {"images": self._images, "annotations": self._annotations, "categories": categories}
            json.dump(hami.to_json(content), self._file)
        self._file.close()
        self._file = None

    def __enter__(self) -> LabelWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class VideoWriter:
    """Write frames as a WebM file with VP9, which browsers play. An odd width or height gets a black column or row.

    Args:
        path: A file whose name ends with .webm.
        frame_rate: Frames per second.

    Raises:
        ValueError: The name, or a frame of another size than the first one.
        OSError: The file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], frame_rate: float) -> None:
        self._path, self._rate = os.fspath(path), frame_rate
        if not self._path.endswith(".webm"):
            raise ValueError(f"the video is WebM, so its name must end with .webm, got {self._path}")
        self._writer: cv2.VideoWriter | None = None
        self._shape: tuple[int, ...] = ()

    def write(self, image: NDArray[np.uint8]) -> None:
        """Write the next frame: uint8, H x W x 3, BGR."""
        if self._writer is None:
            self._shape = image.shape
            size = image.shape[1] + image.shape[1] % 2, image.shape[0] + image.shape[0] % 2
            self._writer = cv2.VideoWriter(
                self._path, cv2.CAP_FFMPEG, cv2.VideoWriter.fourcc(*"VP90"), self._rate, size
            )
            if not self._writer.isOpened():
                raise OSError(f"{self._path} cannot be written as a video of {size[0]} x {size[1]} pixels")
        if image.shape != self._shape:
            raise ValueError(f"the frames of a video have one shape, {self._shape}, got {image.shape}")
        height, width = image.shape[:2]
        if height % 2 or width % 2:
            image = np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)))
        self._writer.write(image)

    def close(self) -> None:
        """Complete the file."""
        if self._writer is not None:
            self._writer.release()
            self._writer = None

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _stem(found: Detections) -> str:
    """Return a name for the files of a picture: that of its source, and the number of the frame."""
    name = re.sub(r"[^\w.-]+", "_", Path(found.source).stem if found.source else "picture")
    return f"{name}_{found.frame or 0:06}"
