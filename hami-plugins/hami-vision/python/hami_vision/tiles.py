"""find_in_tiles: small objects in a large picture, which is cut into tiles that overlap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import hami
import numpy as np
from numpy.typing import NDArray

from hami_vision.detections import Detections

_AT_ONCE = 32  # tiles in the pipe: enough for batches, and few in memory
_EDGE = 2.0  # pixels: a box that ends so near to the edge of its tile may be cut
_SAME = 0.6  # of the smaller of two boxes: where it is in the other one and one of them is cut, they are one object


def find_in_tiles(
    pipe: hami.Pipe,
    image: NDArray[np.uint8],
    *,
    size: int = 640,
    overlap: float = 0.2,
    whole: bool = True,
    iou_threshold: float = 0.45,
    node: str | None = "detect",
) -> Detections:
    """Return the objects of a picture, found in tiles, with those of neighbouring tiles merged.

    An object that is smaller than the overlap is whole in a tile. Of a larger one, parts are found in several, and the
    whole picture, which is one more tile, finds it at once.

    Args:
        pipe: A pipe of the pipeline detect or segment.
        image: uint8, H x W x 3, BGR.
        size: Width and height of a tile in pixels, best those of the model's input.
        overlap: Part of a tile that the next one has too, 0 to below 1.
        whole: Whether the whole picture is searched too.
        iou_threshold: Objects that overlap a better one of their class by more are removed.
        node: The node of the pipe that takes pictures; None: the first one does.

    Raises:
        ValueError: A size or overlap out of range.
        hami.Error: A tile failed.
    """
    if size < 1 or not 0 <= overlap < 1:
        raise ValueError(f"size must be at least 1 and overlap from 0 to below 1, got {size} and {overlap}")
    height, width = image.shape[:2]
    areas = [(0, 0, width, height)] if whole or (width <= size and height <= size) else []
    if width > size or height > size:
        rows, columns = (list(_starts(side, size, overlap)) for side in (height, width))
        areas += [(x, y, min(x + size, width), min(y + size, height)) for y in rows for x in columns]
    keys = {} if node is None else {"node_name": node}
    parts: list[Detections] = []
    for start in range(0, len(areas), _AT_ONCE):
        some = areas[start : start + _AT_ONCE]
        requests: list[dict[str, Any]] = [
            {"data": np.ascontiguousarray(image[y1:y2, x1:x2]), "color": "bgr", **keys} for x1, y1, x2, y2 in some
        ]
        pipe(requests)
        parts += [
            _placed(request["result"], area, (width, height)) for request, area in zip(requests, some, strict=True)
        ]
    cut = np.concatenate([_is_cut(part, area, (width, height)) for part, area in zip(parts, areas, strict=True)])
    return _merged(_joined(parts), cut, iou_threshold)


def _starts(side: int, size: int, overlap: float) -> Iterator[int]:
    """Yield where tiles begin; the last one ends at the edge of the picture."""
    if side <= size:
        yield 0
        return
    step = max(1, round(size * (1 - overlap)))
    yield from range(0, side - size, step)
    yield side - size


def _placed(found: Detections, area: tuple[int, int, int, int], size: tuple[int, int]) -> Detections:
    """Return the objects of a tile in pixels of the picture."""
    x1, y1, x2, y2 = area
    changed: dict[str, Any] = {"boxes": found.boxes + np.array([x1, y1, x1, y1], np.float32)}
    if found.keypoints is not None:
        changed["keypoints"] = found.keypoints + np.array([x1, y1, 0], np.float32)
    if found.masks is not None:
        changed["masks"] = np.zeros((len(found), size[1], size[0]), bool)
        changed["masks"][:, y1:y2, x1:x2] = found.masks
    return replace(found, **changed)


def _is_cut(found: Detections, area: tuple[int, int, int, int], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Return which boxes end at an edge of the tile that is not one of the picture."""
    near = np.abs(found.boxes - np.array(area, np.float32)) < _EDGE
    inner = np.array([area[0] > 0, area[1] > 0, area[2] < size[0], area[3] < size[1]])
    cut: NDArray[np.bool_] = np.any(near & inner, axis=1)
    return cut


def _joined(parts: list[Detections]) -> Detections:
    names = ("boxes", "scores", "classes", "masks", "keypoints", "angles")
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in names
        if all(getattr(part, name) is not None for part in parts)
    }
    return replace(parts[0], **columns)


def _merged(found: Detections, cut: NDArray[np.bool_], iou_threshold: float) -> Detections:
    """Keep whole boxes before cut ones, the best first, where they are not the same object as one that is kept."""
    boxes = found.boxes.astype(np.float64)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    kept: list[int] = []
    for row in np.lexsort((-found.scores, -areas * cut, cut)).tolist():  # of cut ones, the largest first
        others = np.array([each for each in kept if found.classes[each] == found.classes[row]], np.intp)
        sides = np.minimum(boxes[others, 2:], boxes[row, 2:]) - np.maximum(boxes[others, :2], boxes[row, :2])
        both = np.maximum(sides, 0).prod(1)
        union, smaller = areas[others] + areas[row] - both, np.minimum(areas[others], areas[row])
        same = (both > iou_threshold * union) | ((cut[others] | cut[row]) & (both > _SAME * smaller))
        if not same.any():
            kept.append(row)
    return found[sorted(kept, key=lambda row: -found.scores[row])]
