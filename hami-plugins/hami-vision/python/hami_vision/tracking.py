"""Tracker: gives the objects of one stream ids that stay, by the method of ByteTrack (Zhang et al., 2022).

Objects with a high score are matched to the predicted boxes of all tracks first, then those with a low score to the
tracks that are still without one. Times are in seconds: an object that is not seen for some frames, or whose frames
were dropped, keeps its id as long as `max_lost` has not passed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from hami_vision.detections import NO_ID, Detections
from hami_vision.motion import Floats, Motion

Rows = NDArray[np.intp]
_MIN_IOU_HIGH, _MIN_IOU_LOW, _MIN_IOU_NEW = 0.2, 0.5, 0.3  # of a match in the three rounds; from the paper's code


@dataclass(frozen=True)
class Rules:
    """When tracks begin and end.

    Attributes:
        high: Objects with a score above it are matched first, and may begin a track.
        low: Objects with a score above it may continue a track.
        new: A track begins with an object whose score is above it.
        max_lost: Seconds for which an object that is not seen keeps its id.
    """

    high: float = 0.5
    low: float = 0.1
    new: float = 0.6
    max_lost: float = 1.0


def check_time(before: float | None, time: float) -> None:
    """Raise ValueError if the time of a frame is not after that of the frame before."""
    if not np.isfinite(time) or (before is not None and time <= before):
        raise ValueError(
            f"the time of a frame must be after that of the frame before, {before} s, got {time} s (each program that "
            "reads a source needs a `req_id` of its own, and a request with `finish` = true ends its stream)"
        )


class Tracker:
    """The tracks of one stream."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.time: float | None = None
        self._next_id = 0
        self._motion = Motion.start(np.zeros((0, 4)))
        self._ids = np.zeros(0, np.int64)
        self._seen = np.zeros(0)  # when
        self._hits = np.zeros(0, np.int64)  # how often; the id is given at the second
        self._is_lost = np.zeros(0, bool)

    def update(self, found: Detections, time: float) -> NDArray[np.int64]:
        """Return the id of each object of the next frame; -1 where there is none yet.

        Args:
            found: The objects. One with NaN or an infinite number has no id.
            time: When the frame was taken, in seconds; later than that of the frame before.

        Raises:
            ValueError: Time went back or stood still. The tracks stay as they were.
        """
        check_time(self.time, time)
        first = self.time is None
        self._motion = self._motion.advance(np.array(0.0 if self.time is None else time - self.time))
        self.time = time
        self._keep(np.flatnonzero(time - self._seen <= self.rules.max_lost))
        boxes = found.boxes.astype(np.float64)
        usable = np.isfinite(boxes).all(1) & np.isfinite(found.scores) & (boxes[:, 2:] > boxes[:, :2]).all(1)
        scores = np.where(usable, found.scores, -np.inf)
        high, low = scores > self.rules.high, (scores > self.rules.low) & ~(scores > self.rules.high)
        rows = np.full(len(found), -1)
        self._associate(np.flatnonzero(high), np.flatnonzero(low), boxes, scores, rows)
        matched = rows[rows >= 0]
        self._correct(matched, boxes[rows >= 0])
        self._seen[matched], self._is_lost[:] = time, True
        self._is_lost[matched] = False
        self._hits[matched] += 1
        self._begin(np.flatnonzero(high & (rows < 0) & (scores > self.rules.new)), boxes, time, first, rows)
        ids = np.where(rows >= 0, self._ids[rows], NO_ID) if len(self._ids) else np.full(len(found), NO_ID)
        self._keep(np.flatnonzero(~((self._hits == 1) & self._is_lost)))
        return ids.astype(np.int64)

    def _associate(self, high: Rows, low: Rows, boxes: Floats, scores: Floats, rows: NDArray[np.int64]) -> None:
        """Set the track of each object that continues one; `rows` begins with -1 for each object."""
        tentative = self._hits == 1
        free = np.flatnonzero(~tentative)
        self._match(free, high, boxes, scores, _MIN_IOU_HIGH, rows)
        free = np.setdiff1d(free[~self._is_lost[free]], rows)
        self._match(free, low, boxes, None, _MIN_IOU_LOW, rows)
        self._match(np.flatnonzero(tentative), high[rows[high] < 0], boxes, scores, _MIN_IOU_NEW, rows)

    def _correct(self, rows: Rows, boxes: Floats) -> None:
        """Take the boxes of the tracks that were found."""
        self._motion.correct(rows, boxes)

    def _match(
        self, tracks: Rows, objects: Rows, boxes: Floats, scores: Floats | None, least: float, rows: NDArray[np.int64]
    ) -> None:
        """Set the track of each object that overlaps one enough, so that the overlaps are the largest together."""
        if not len(tracks) or not len(objects):
            return
        overlaps = overlaps_of(self._motion[tracks].boxes(), boxes[objects])
        gain = overlaps if scores is None else overlaps * scores[objects]
        assign(overlaps, gain, least, tracks, objects, rows)

    def _begin(self, objects: Rows, boxes: Floats, time: float, first: bool, rows: NDArray[np.int64]) -> None:
        """Begin tracks. Those of the first frame have their ids at once, others when they are seen a second time."""
        for row in np.flatnonzero((self._hits == 2) & (self._ids == NO_ID)).tolist():
            self._ids[row] = self._take_id()
        rows[objects] = np.arange(len(self._ids), len(self._ids) + len(objects))
        ids = [self._take_id() if first else NO_ID for _ in objects]
        self._motion = self._motion.append(Motion.start(boxes[objects]))
        self._ids = np.append(self._ids, np.array(ids, np.int64))
        self._seen = np.append(self._seen, np.full(len(objects), time))
        self._hits = np.append(self._hits, np.full(len(objects), 2 if first else 1))
        self._is_lost = np.append(self._is_lost, np.zeros(len(objects), bool))

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def _keep(self, rows: Rows) -> None:
        self._motion = self._motion[rows]
        self._ids, self._seen, self._hits = self._ids[rows], self._seen[rows], self._hits[rows]
        self._is_lost = self._is_lost[rows]


def assign(overlaps: Floats, gain: Floats, least: float, tracks: Rows, objects: Rows, rows: NDArray[np.int64]) -> None:
    """Set the track of each object in `rows`, so that the gain of all pairs that overlap enough is the largest."""
    for track, each in zip(*linear_sum_assignment(np.where(overlaps >= least, gain, 0), maximize=True), strict=True):
        if overlaps[track, each] >= least:
            rows[objects[each]] = tracks[track]


def overlaps_of(one: Floats, other: Floats) -> Floats:
    """Return the intersection over union of each box of `one` with each of `other`."""
    sides = np.minimum(one[:, None, 2:], other[None, :, 2:]) - np.maximum(one[:, None, :2], other[None, :, :2])
    both = np.maximum(sides, 0).prod(-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (one, other)]
    whole = areas[0][:, None] + areas[1][None] - both
    overlaps: Floats = np.divide(both, whole, out=np.zeros_like(both), where=whole > 0)
    return overlaps
