"""Heads: what the outputs of common detectors mean, as data, and the boxes that they contain.

A head is chosen by the names and shapes of the outputs, the size of the input, and the number of labels. Where several
fit, the caller has to name one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import hami
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
STRIDES = ((8, 16, 32), (8, 16, 32, 64))  # pixels of the input for each cell of a level
MASK_COEFFICIENTS = 32
_ROUNDING = 1e-2  # of a sum of probabilities, in float16
_NAMED = {  # spellings of outputs
    "boxes": ("boxes", "pred_boxes", "detection_boxes"),
    "scores": ("scores", "detection_scores"),
    "logits": ("logits", "pred_logits"),
    "labels": ("labels", "detection_classes"),
}


@dataclass(frozen=True)
class Head:
    """One layout of outputs.

    Attributes:
        outputs: What they are called in `Outputs`.
        axes: Of a `table`: "rows" are [boxes, columns], "columns" are [columns, boxes].
        anchors: Boxes of a table for each cell of the levels; 0: as many as the model has queries.
        columns: What follows the 4 columns of the box, in order; "classes" is one for each class.
        box: What the 4 numbers are.
        relative: Whether coordinates are from 0 to 1 of the input, instead of pixels.
        activation: What makes scores of the numbers.
        suppress: Whether boxes overlap and need non-maximum suppression.
        first_class: The number that the model gives to the first label.
    """

    outputs: frozenset[str]
    axes: Literal["rows", "columns"] = "rows"
    anchors: int = 0
    columns: tuple[str, ...] = ()
    box: Literal["cxcywh", "xyxy", "yxyx"] = "cxcywh"
    relative: bool = False
    activation: Literal["none", "sigmoid", "softmax"] = "none"
    suppress: bool = True
    first_class: int = 0


_TABLE, _QUERIES = frozenset({"table"}), frozenset({"boxes", "logits"})
_FINISHED = frozenset({"boxes", "scores", "labels"})
HEADS: Mapping[str, Head] = {
    "yolov5": Head(_TABLE, "rows", 3, ("objectness", "classes")),
    "yolov8": Head(_TABLE, "columns", 1, ("classes",)),
    "yolov8-obb": Head(_TABLE, "columns", 1, ("classes", "angle")),
    "yolov8-pose": Head(_TABLE, "columns", 1, ("classes", "keypoints")),
    "yolov8-seg": Head(frozenset({"table", "prototypes"}), "columns", 1, ("classes", "coefficients")),
    "yolov10": Head(_TABLE, "rows", 0, ("score", "class"), box="xyxy", suppress=False),
    "detr": Head(_QUERIES, relative=True, activation="softmax", suppress=False),
    "rt-detr": Head(_QUERIES, relative=True, activation="sigmoid", suppress=False),
    "boxes-scores-labels": Head(_FINISHED, box="xyxy", suppress=False),
    "ssd": Head(_FINISHED, box="yxyx", relative=True, suppress=False, first_class=1),
    "classification": Head(frozenset({"classes"}), box="xyxy", activation="softmax", suppress=False),
}
ALIASES = {
    **dict.fromkeys(("yolov9", "yolo11", "yolov11", "yolo12", "yolov12"), "yolov8"),
    "yolov7": "yolov5",
    "yolo26": "yolov10",
}


@dataclass
class Candidates:
    """Boxes of one picture before suppression, as columns; x1, y1, x2, y2 in pixels of the input, before any turn."""

    boxes: Array
    scores: Array
    classes: Array
    extra: dict[str, Array]  # angle, keypoints or coefficients, by box
    nan_boxes: int = 0  # left out: the score is NaN, or it passes and another number of the box is

    def at(self, kept: Array) -> Candidates:
        """Return those at these indices, or where a mask is true."""
        extra = {name: column[kept] for name, column in self.extra.items()}
        return replace(self, boxes=self.boxes[kept], scores=self.scores[kept], classes=self.classes[kept], extra=extra)


@dataclass
class Outputs:
    """The outputs of a model for one picture, by what they are, without the batch axis."""

    parts: dict[str, Array]

    @classmethod
    def read(cls, data: Any) -> Outputs:
        """Sort an array, or a list or dict of them.

        Raises:
            hami.RequestError: They fit no head.
        """
        named = (
            dict(data)
            if isinstance(data, dict)
            else dict(enumerate(data if isinstance(data, (list, tuple)) else [data]))
        )
        arrays = {name: np.asarray(hami.to_numpy(value)) for name, value in named.items()}
        parts: dict[str, Array] = {}
        for name, array in arrays.items():
            kind = next((kind for kind, names in _NAMED.items() if name in names), None)
            if len(arrays) == 1 and array.ndim >= 2 and array.size == array.shape[1]:
                kind, array = "classes", array.reshape(1, -1)
            if array.ndim and array.shape[0] != 1:
                raise hami.RequestError(f"DecodeDetections takes the outputs for one picture, got {_shown(arrays)}")
            if kind:
                parts[kind] = array[0]
            elif array.ndim == 3:
                parts["table"] = array[0]
            elif array.ndim == 4 and array.shape[1] == MASK_COEFFICIENTS:
                parts["prototypes"] = array[0]
        if frozenset(parts) not in {head.outputs for head in HEADS.values()}:
            raise hami.RequestError(
                f"DecodeDetections: the outputs fit no head: {_shown(arrays)}; the heads are {', '.join(HEADS)}"
            )
        return cls(parts)


def heads_of(signature: Mapping[str, Any]) -> list[str]:
    """Return the heads that fit the inputs and outputs that a model declares; none where sizes are not declared.

    Args:
        signature: `inputs` and `outputs`, lists of dicts with name and shape, in which -1 is any length.
    """
    shapes = [each["shape"] for each in signature["inputs"]]
    outputs = {each["name"]: [1, *each["shape"][1:]] for each in signature["outputs"]}
    if len(shapes) != 1 or len(shapes[0]) != 4 or shapes[0][1] != 3 or any(-1 in shape for shape in outputs.values()):
        return []
    height, width = shapes[0][2:]
    try:
        found = Outputs.read({name: np.broadcast_to(np.float32(0), shape) for name, shape in outputs.items()})
    except hami.RequestError:
        return []
    if "table" in found.parts and min(height, width) < 1:
        return []
    return [name for name, head in HEADS.items() if fits(head, found, (width, height), None)]


def find_head(outputs: Outputs, size: tuple[int, int], labels: int | None) -> str:
    """Return the name of the only head that fits.

    Args:
        outputs: Those of one picture.
        size: Width and height of the input.
        labels: How many classes there are, if that is known.

    Raises:
        hami.ConfigError: Several fit, or none.
    """
    fitting = [name for name, head in HEADS.items() if fits(head, outputs, size, labels)]
    if len(fitting) == 1:
        return fitting[0]
    shapes = _shown(outputs.parts)
    if not fitting:
        with_labels = "" if labels is None else f" and {labels} labels"
        raise hami.ConfigError(
            f"DecodeDetections: no head fits {shapes} of an input of {size[0]} x {size[1]} pixels{with_labels}; "
            f"set head to one of {', '.join(HEADS)}"
        )
    hint = "set labels, the file with the names of the classes, or head" if labels is None else "set head"
    raise hami.ConfigError(f"DecodeDetections: {', '.join(fitting)} fit {shapes}; {hint}")


def fits(head: Head, outputs: Outputs, size: tuple[int, int], labels: int | None) -> bool:
    """Return whether outputs of these shapes can be of a head."""
    if head.outputs != frozenset(outputs.parts):
        return False
    if "logits" in head.outputs:  # softmax has one class more: no object
        found = outputs.parts["logits"].shape[1]
        return labels is None or found == labels + (head.activation == "softmax")
    if "classes" in head.outputs:
        return labels in (None, len(outputs.parts["classes"]))
    if "table" not in head.outputs:
        return True
    table = outputs.parts["table"]
    rows, columns = table.shape if head.axes == "rows" else table.shape[::-1]
    cells = {sum(-(-size[0] // s) * -(-size[1] // s) for s in strides) for strides in STRIDES}
    if head.anchors:
        return rows in {head.anchors * each for each in cells} and _classes_of(head, columns, labels) is not None
    return columns == 4 + len(head.columns) and rows not in {n * each for n in (1, 3) for each in cells}


def _classes_of(head: Head, columns: int, labels: int | None) -> int | None:
    """Return the number of classes in a table with so many columns; None if there is none."""
    rest = columns - 4 - len({"objectness", "angle"} & set(head.columns))
    if "coefficients" in head.columns:
        rest -= MASK_COEFFICIENTS
    if "keypoints" in head.columns:
        classes = labels if labels is not None else 1
        return classes if rest > classes and (rest - classes) % 3 == 0 else None
    return rest if rest >= 1 and labels in (None, rest) else None


def candidates_of(
    name: str, outputs: Outputs, size: tuple[int, int], labels: int | None, score_threshold: float
) -> Candidates:
    """Return the boxes whose score is above the threshold, without those with NaN, which are counted.

    Raises:
        hami.ConfigError: The outputs do not have the form of that head.
    """
    head = HEADS[ALIASES.get(name, name)]
    if head.outputs != frozenset(outputs.parts):
        others = ", ".join(other for other, each in HEADS.items() if each.outputs == frozenset(outputs.parts))
        raise hami.ConfigError(
            f"DecodeDetections: the head {name} needs {', '.join(sorted(head.outputs))}, got {_shown(outputs.parts)}; "
            f"such outputs are of {others}"
        )
    if "table" in head.outputs:
        found = _from_table(name, head, outputs.parts["table"], labels, score_threshold)
    elif "logits" in head.outputs:
        found = _from_queries(head, outputs.parts, score_threshold)
    elif "classes" in head.outputs:
        scores = _probabilities(outputs.parts["classes"].astype(np.float32))
        kept = _passing(scores, score_threshold)
        whole = np.tile(np.array([0, 0, *size], np.float32), (len(kept), 1))  # clipped to the picture later
        found = Candidates(whole, scores[kept], kept, {})
    else:
        scores = outputs.parts["scores"].reshape(-1).astype(np.float32)
        kept = _passing(scores, score_threshold)
        numbers = outputs.parts["labels"].reshape(-1)[kept].astype(np.float64)  # unsigned ones would wrap
        classes = numbers - head.first_class
        found = Candidates(outputs.parts["boxes"].reshape(-1, 4)[kept].astype(np.float32), scores[kept], classes, {})
    found.boxes = _as_corners(found.boxes, head.box)
    if head.relative:
        found.boxes = found.boxes * np.array([*size, *size], np.float32)
    return _without_nan(found)


def _passing(scores: Array, threshold: float) -> Array:
    """Return the indices of scores that are not too low; those that are NaN are among them, to be counted."""
    return np.flatnonzero(~(scores <= threshold))


def _without_nan(found: Candidates) -> Candidates:
    extra = [column for name, column in found.extra.items() if name != "keypoints"]  # a point may be NaN alone
    is_nan = np.asarray(np.isnan(np.column_stack([found.boxes, found.scores, found.classes, *extra])).any(1))
    kept = found.at(~is_nan)
    return replace(kept, classes=kept.classes.astype(np.int64), nan_boxes=int(is_nan.sum()))


def _from_table(name: str, head: Head, table: Array, labels: int | None, score_threshold: float) -> Candidates:
    columns = table if head.axes == "columns" else table.T  # a view: [columns, boxes]
    if head.columns == ("score", "class"):
        if len(columns) != 6:
            raise hami.ConfigError(f"DecodeDetections: the head {name} has 6 columns, got {list(table.shape)}")
        kept = _passing(columns[4], score_threshold)
        part = columns[:, kept].astype(np.float32)
        return Candidates(part[:4].T, part[4], part[5], {})
    classes = _classes_of(head, len(columns), labels)
    if classes is None:
        raise hami.ConfigError(
            f"DecodeDetections: an output {list(table.shape)} has not the columns of the head {name}"
            + ("" if labels is None else f" with {labels} classes")
        )
    start = 4 + ("objectness" in head.columns)
    best = columns[start : start + classes].max(0)
    scores = best * columns[4] if "objectness" in head.columns else best
    kept = _passing(scores, score_threshold)
    part = columns[:, kept].astype(np.float32)
    extra = {} if head.columns[-1] == "classes" else {head.columns[-1]: part[start + classes :].T}
    return Candidates(part[:4].T, scores[kept].astype(np.float32), part[start : start + classes].argmax(0), extra)


def _from_queries(head: Head, parts: dict[str, Array], score_threshold: float) -> Candidates:
    logits = parts["logits"].astype(np.float32)
    if head.activation == "softmax":
        powers = np.exp(logits - logits.max(-1, keepdims=True))
        scores = (powers / powers.sum(-1, keepdims=True))[:, :-1]  # the last class is "no object"
    else:
        with np.errstate(over="ignore"):
            scores = 1 / (1 + np.exp(-logits))
    best = scores.max(-1)
    kept = _passing(best, score_threshold)
    return Candidates(parts["boxes"][kept].astype(np.float32), best[kept], scores[kept].argmax(-1), {})


def _probabilities(scores: Array) -> Array:
    """Return the softmax of scores; probabilities, which add up to 1, stay as they are."""
    if (scores >= 0).all() and abs(float(scores.sum()) - 1) < _ROUNDING:
        return scores
    powers = np.exp(scores - scores.max(initial=-np.inf))
    shares: Array = powers / powers.sum()
    return shares


def _as_corners(boxes: Array, kind: str) -> Array:
    if kind == "cxcywh":
        half = boxes[:, 2:] / 2
        return np.hstack([boxes[:, :2] - half, boxes[:, :2] + half])
    return boxes[:, [1, 0, 3, 2]] if kind == "yxyx" else boxes


def _shown(arrays: Mapping[Any, Array]) -> str:
    return ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
