"""Detections: the objects found in one picture, as columns of NumPy arrays."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import hami
import numpy as np
from numpy.typing import NDArray

NO_ID = -1  # of an object without a track; 0 is an id


@dataclass(frozen=True, eq=False)
class Detections:
    """The objects of one picture. Row i of each column describes object i.

    >>> import numpy as np
    >>> from hami_vision import Detections
    >>> found = Detections(np.float32([[1, 2, 3, 4]]), scores=np.float32([0.5]), classes=[1], names=["cat", "dog"])
    >>> found.to_json()
    '[{"box": [1.0, 2.0, 3.0, 4.0], "score": 0.5, "class": 1, "name": "dog"}]'

    Attributes:
        boxes: float32 N x 4: x1, y1, x2, y2 in pixels of the picture. Edges, so the width is x2 - x1.
        scores: float32 N.
        classes: int64 N.
        names: The name of each class, or none.
        masks: bool N x height x width, in pixels of the picture.
        keypoints: float32 N x K x 3: x, y in pixels, and a score.
        angles: float32 N, radians; the box turns about its centre. `boxes` has the sides before the turn.
        ids: int64 N, of tracks; -1 where an object has none yet.
        source, frame, time: Which stream it is, the index of the picture, and its time in seconds.

    Raises:
        ValueError: Columns of different lengths or of other shapes.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    classes: NDArray[np.int64]
    names: Sequence[str] = field(default=())
    masks: NDArray[np.bool_] | None = None
    keypoints: NDArray[np.float32] | None = None
    angles: NDArray[np.float32] | None = None
    ids: NDArray[np.int64] | None = None
    source: str | None = None
    frame: int | None = None
    time: float | None = None

    def __post_init__(self) -> None:
        count = len(self.boxes)
        for name, (dtype, shape) in _COLUMNS.items():
            value = getattr(self, name)
            if value is None:
                continue
            array = np.asarray(value, dtype)
            if count == 0 and array.size == 0 and array.ndim != len(shape) + 1:
                array = np.zeros((0, *(size or 0 for size in shape)), dtype)
            if (
                array.ndim != len(shape) + 1
                or len(array) != count
                or any(size not in (None, found) for size, found in zip(shape, array.shape[1:], strict=True))
            ):
                expected = " x ".join(["N", *("any" if size is None else str(size) for size in shape)])
                raise ValueError(f"Detections: {name} must be {expected} with N = {count}, got {array.shape}")
            object.__setattr__(self, name, array)
        object.__setattr__(self, "names", tuple(self.names))

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, rows: Any) -> Detections:
        """Return some rows: a slice, a bool array, or indices."""
        chosen = {name: getattr(self, name)[rows] for name in _COLUMNS if getattr(self, name) is not None}
        if chosen["boxes"].ndim == 1:  # one row, by its number
            return self[[rows]]
        return replace(self, **chosen)

    def finite(self) -> Detections:
        """Return the rows whose boxes have no NaN and no infinite number."""
        return self[np.isfinite(self.boxes).all(1)]

    def name_of(self, row: int) -> str:
        """Return the name of the class of a row; the number if it has none."""
        number = int(self.classes[row])
        return self.names[number] if 0 <= number < len(self.names) else str(number)

    def of_class(self, *wanted: str | int) -> Detections:
        """Return the rows of these classes, by name or number."""
        return self[[i for i in range(len(self)) if self.name_of(i) in wanted or int(self.classes[i]) in wanted]]

    def tolist(self) -> list[dict[str, Any]]:
        """Return a dict for each object: box, score, class, name, and what it has of id, angle and keypoints."""
        return [self._row(i) for i in range(len(self))]

    def _row(self, i: int) -> dict[str, Any]:
        row: dict[str, Any] = {
            "box": self.boxes[i].tolist(),
            "score": float(self.scores[i]),
            "class": int(self.classes[i]),
            "name": self.name_of(i),
        }
        for key, column in (("id", self.ids), ("angle", self.angles), ("keypoints", self.keypoints)):
            if column is not None:
                row[key] = column[i].tolist()
        return row

    def to_json(self) -> str:
        """Return the objects as a JSON text; NaN becomes null. Masks are not in it."""
        return json.dumps(hami.to_json(self.tolist()))

    def crop(self, image: NDArray[Any]) -> Iterator[NDArray[Any]]:
        """Yield the part of the picture in each box, as views. A box outside the picture gives an empty part."""
        height, width = image.shape[:2]
        for box in np.nan_to_num(self.boxes.astype(np.float64), posinf=1e9, neginf=-1e9):
            x1, x2 = (int(np.clip(edge, 0, width)) for edge in (np.floor(box[0]), np.ceil(box[2])))
            y1, y2 = (int(np.clip(edge, 0, height)) for edge in (np.floor(box[1]), np.ceil(box[3])))
            yield image[y1 : max(y1, y2), x1 : max(x1, x2)]

    def to_supervision(self) -> Any:
        """Return a supervision.Detections, which has no NaN boxes: rows with them are left out.

        Raises:
            ImportError: supervision is not installed.
        """
        import supervision

        kept = self.finite()
        data = {
            "hami_" + name: getattr(kept, name) for name in ("keypoints", "angles") if getattr(kept, name) is not None
        }
        if self.names:
            data["class_name"] = np.array([kept.name_of(i) for i in range(len(kept))])
        return supervision.Detections(
            xyxy=kept.boxes,
            confidence=kept.scores,
            class_id=kept.classes,
            mask=kept.masks,
            tracker_id=kept.ids,
            data=data,
            metadata={name: getattr(self, name) for name in _METADATA},
        )

    @classmethod
    def from_supervision(cls, found: Any) -> Detections:
        """Return the detections of a supervision.Detections. Missing scores are 1, and missing classes 0."""
        count = len(found.xyxy)
        metadata = {name: found.metadata[name] for name in _METADATA if name in found.metadata}
        columns = {name: found.data["hami_" + name] for name in ("keypoints", "angles") if "hami_" + name in found.data}
        classes = np.zeros(count, np.int64) if found.class_id is None else found.class_id
        if "names" not in metadata and "class_name" in found.data and count:
            texts = dict(zip(np.asarray(classes).tolist(), map(str, found.data["class_name"]), strict=True))
            metadata["names"] = tuple(texts.get(i, str(i)) for i in range(max(texts) + 1))
        return cls(
            boxes=found.xyxy,
            scores=np.ones(count, np.float32) if found.confidence is None else found.confidence,
            classes=classes,
            masks=found.mask,
            ids=found.tracker_id,
            **columns,
            **metadata,
        )


_COLUMNS: dict[str, tuple[Any, tuple[int | None, ...]]] = {  # dtype, and the sizes after the number of objects
    "boxes": (np.float32, (4,)),
    "scores": (np.float32, ()),
    "classes": (np.int64, ()),
    "masks": (np.bool_, (None, None)),
    "keypoints": (np.float32, (None, 3)),
    "angles": (np.float32, ()),
    "ids": (np.int64, ()),
}
_METADATA = [each.name for each in fields(Detections) if each.name not in _COLUMNS]


def detections_of(item: Any, backend: str) -> Detections:
    """Return `data` of a request, which must be Detections."""
    data = item.get("data", None)
    if not isinstance(data, Detections):
        raise hami.DataTypeError(
            f'{backend}: "data" must be hami_vision.Detections, as DecodeDetections returns, got {type(data).__name__}'
        )
    return data


def finite_of(backend: hami.Backend, found: Detections) -> Detections:
    """Return the rows whose boxes are finite; the counter `nan_boxes` of the node has the number of the others."""
    finite = found.finite()
    if len(finite) < len(found):
        backend.count("nan_boxes", len(found) - len(finite))
    return finite


def state_of(item: Any, backend: str, make: Callable[[], Any]) -> Any:
    """Return what this backend keeps for the stream of a request, in the `state` of StateFul."""
    if "state" not in item:
        raise hami.ConfigError(
            f'{backend} keeps a state for each stream and needs StateFul around it: "StateFul[{backend}]", and a key '
            "`req_id` that names the stream in each request"
        )
    state = item["state"]
    if state is None:
        state = item["state"] = {}
    if backend not in state:
        state[backend] = make()
    return state[backend]
