"""DecodeDetections: turns the outputs of a detector into Detections."""

from __future__ import annotations

from typing import Annotated, Any

import cv2
import hami
import numpy as np
from hami_tensor.boxes import nms
from hami_tensor.labels import read_labels
from numpy.typing import NDArray

from hami_vision.detections import Detections
from hami_vision.heads import ALIASES, HEADS, Candidates, Outputs, candidates_of, find_head
from hami_vision.letter_box_input import LetterBox


class DecodeDetections(hami.Backend):
    """Turn the outputs of a detector into Detections in pixels of the picture, the best first.

    data: the outputs for one picture: an array, or a list or dict of them; the key `letter_box` of LetterBoxInput
    result: hami_vision.Detections; the keys `source`, `frame` and `time` of the request are copied
    """

    max = 1024
    thread = "concurrent"
    lightweight = True

    head: Annotated[str | None, "layout of the outputs, such as yolov8 or rt-detr; default: the only one that fits"] = (
        None
    )
    labels: Annotated[hami.types.FilePath | None, "a file with the name of one class in each line"] = None
    score_threshold: Annotated[float, "objects with this score or less are removed"] = 0.25
    iou_threshold: Annotated[float, "objects that overlap a better one of their class by more are removed, 0 to 1"] = (
        0.45
    )
    max_objects: Annotated[int, "most objects of a picture"] = 300

    def init(self, options: Any) -> None:
        if self.head is not None and self.head not in {*HEADS, *ALIASES}:
            raise hami.ConfigError(
                f"DecodeDetections: head must be one of {', '.join([*HEADS, *ALIASES])}, got {self.head!r}"
            )
        if not 0 <= self.iou_threshold <= 1 or self.max_objects < 1:
            raise hami.ConfigError(
                "DecodeDetections: iou_threshold must be from 0 to 1 and max_objects at least 1, got "
                f"{self.iou_threshold} and {self.max_objects}"
            )
        self._names = tuple(read_labels(self.labels, "DecodeDetections")) if self.labels is not None else ()

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            try:
                item["result"] = self._decode(item)
            except hami.Error as error:
                item.fail(error)

    def _decode(self, item: Any) -> Detections:
        box = item.get("letter_box", None)
        if not isinstance(box, LetterBox):
            raise hami.RequestError("DecodeDetections needs the key `letter_box`; put LetterBoxInput before the engine")
        outputs = Outputs.read(item.get("data", None))
        size, labels = (box.width, box.height), len(self._names) or None
        name = self.head or find_head(outputs, size, labels)
        found = candidates_of(name, outputs, size, labels, self.score_threshold)
        if found.nan_boxes:
            self.count("nan_boxes", found.nan_boxes)
        if "angle" not in found.extra:  # else the turned box may be in the picture
            is_inside = box.meets(found.boxes)
            if not is_inside.all():
                self.count("outside", int((~is_inside).sum()))
                found = found.at(is_inside)
        found = found.at(self._best(found, HEADS[ALIASES.get(name, name)].suppress))
        extra = found.extra
        return Detections(
            boxes=_box_in_image(found.boxes, box, "angle" in extra),
            scores=found.scores,
            classes=found.classes,
            names=self._names,
            masks=_masks(extra["coefficients"], outputs.parts["prototypes"], found.boxes, box)
            if "coefficients" in extra
            else None,
            keypoints=_keypoints(extra["keypoints"], box) if "keypoints" in extra else None,
            angles=extra["angle"][:, 0] if "angle" in extra else None,
            **{key: item.get(key, None) for key in ("source", "frame", "time")},
        )

    def _best(self, found: Candidates, suppress: bool) -> NDArray[np.int64]:
        boxes = found.boxes
        if "angle" in found.extra:
            sizes = boxes[:, 2:] - boxes[:, :2]
            boxes = np.hstack([boxes[:, :2] + sizes / 2, sizes, found.extra["angle"]])
        threshold = self.iou_threshold if suppress else 1.0  # with 1, it only sorts
        kept = nms(boxes, found.scores, found.classes, iou_threshold=threshold, max_boxes=self.max_objects + 1)
        if len(kept) > self.max_objects:
            self.count("over_max_objects")
        return kept[: self.max_objects]


def _box_in_image(boxes: NDArray[np.float32], box: LetterBox, rotated: bool) -> NDArray[np.float32]:
    points = boxes.reshape(-1, 2, 2)
    return (box.unclipped(points) if rotated else box.to_image(points)).reshape(-1, 4)  # its sides are before the turn


def _keypoints(columns: NDArray[np.float32], box: LetterBox) -> NDArray[np.float32]:
    points = columns.reshape(len(columns), -1, 3)
    return np.concatenate([box.to_image(points[..., :2]), points[..., 2:]], -1)


def _masks(
    coefficients: NDArray[np.float32], prototypes: NDArray[Any], boxes: NDArray[np.float32], box: LetterBox
) -> NDArray[np.bool_]:
    """Combine the prototypes, cut the border away, and set what is inside the box of each object."""
    height, width = prototypes.shape[1:]
    logits = coefficients @ prototypes.reshape(len(prototypes), -1).astype(np.float32)
    masks = np.zeros((len(boxes), box.image_height, box.image_width), bool)
    edges = box.to_image(boxes.reshape(-1, 2, 2)).reshape(-1, 4)
    for mask, plane, (x1, y1, x2, y2) in zip(masks, logits.reshape(-1, height, width), edges.tolist(), strict=True):
        whole = cv2.resize(plane, (box.width, box.height))
        inner = whole[box.top : box.top + box.inner[1], box.left : box.left + box.inner[0]]
        picture = cv2.resize(inner, (box.image_width, box.image_height)) > 0  # a sigmoid above 0.5
        rows, columns = slice(round(y1), round(y2)), slice(round(x1), round(x2))
        mask[rows, columns] = picture[rows, columns]
    return masks
