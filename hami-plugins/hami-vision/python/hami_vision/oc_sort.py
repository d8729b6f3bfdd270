"""OcSortTracker: ids by the method of OC-SORT (Cao et al., 2023), which trusts observations more than predictions.

To the overlap with the prediction it adds how well the direction to an object agrees with the direction of the track
(momentum). A track without an object is compared with where it was seen last (recovery). When a track is found again,
its filter is corrected by the way between both sightings, as if it had been seen on it (re-update).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hami_vision.detections import Detections
from hami_vision.motion import Floats, Motion, to_centres
from hami_vision.tracking import Rows, Rules, Tracker, assign, overlaps_of

_MIN_IOU = 0.3  # of a match; from the paper
_MOMENTUM = 0.2  # weight of the direction against the overlap; from the paper
_LOOK_BACK = 0.1  # seconds between the observations that give a direction: 3 frames of the paper's videos
_MOST_STEPS = 60  # of a re-update; a longer gap has larger steps


@dataclass
class _Sightings:
    """The last observations of a track, the newest last, and its filter after the newest one."""

    seen: list[tuple[float, Floats]] = field(default_factory=list)
    filter: Motion | None = None

    def add(self, time: float, box: Floats) -> None:
        self.seen.append((time, box))
        while len(self.seen) > 2 and time - self.seen[1][0] >= _LOOK_BACK:
            del self.seen[0]


class OcSortTracker(Tracker):
    """The tracks of one stream. Objects with a low score do not continue them."""

    def __init__(self, rules: Rules | None = None) -> None:
        super().__init__(rules)
        self._sightings: list[_Sightings] = []
        self._times: list[float] = []  # of the frames that a lost track may have missed

    def update(self, found: Detections, time: float) -> NDArray[np.int64]:
        ids = super().update(found, time)
        self._times = [each for each in self._times if time - each <= self.rules.max_lost]
        self._times.append(time)
        return ids

    def _associate(self, high: Rows, low: Rows, boxes: Floats, scores: Floats, rows: NDArray[np.int64]) -> None:
        tracks = np.arange(len(self._ids))
        if not len(tracks) or not len(high):
            return
        overlaps = overlaps_of(self._motion.boxes(), boxes[high])
        gain = overlaps + _MOMENTUM * self._agreement(boxes[high]) * scores[high]
        assign(overlaps, gain, _MIN_IOU, tracks, high, rows)
        free, rest = np.setdiff1d(tracks, rows), high[rows[high] < 0]
        if len(free) and len(rest):
            last = np.array([self._sightings[row].seen[-1][1] for row in free.tolist()])
            overlaps = overlaps_of(last, boxes[rest])
            assign(overlaps, overlaps, _MIN_IOU, free, rest, rows)

    def _agreement(self, boxes: Floats) -> Floats:
        """Return, for each track and box, from -0.5 to 0.5 how the direction to the box agrees with the track's."""
        places = to_centres(boxes)[:, :2]
        first = np.array([to_centres(each.seen[0][1][None])[0, :2] for each in self._sightings])
        last = np.array([to_centres(each.seen[-1][1][None])[0, :2] for each in self._sightings])
        own, other = last - first, places[None] - first[:, None]
        lengths = np.linalg.norm(own, axis=-1)[:, None] * np.linalg.norm(other, axis=-1)
        cosine = np.divide((own[:, None] * other).sum(-1), lengths, out=np.zeros_like(lengths), where=lengths > 0)
        agreement: Floats = 0.5 - np.arccos(np.clip(cosine, -1, 1)) / np.pi
        return agreement

    def _correct(self, rows: Rows, boxes: Floats) -> None:
        assert self.time is not None
        for row, box in zip(rows.tolist(), boxes, strict=True):
            if self._is_lost[row]:
                self._update_again(row, box)
        super()._correct(rows, boxes)
        for row, box in zip(rows.tolist(), boxes, strict=True):
            sightings = self._sightings[row]
            sightings.add(self.time, box)
            sightings.filter = self._motion[np.array([row])]

    def _update_again(self, row: int, box: Floats) -> None:
        """Give the filter of a track that was lost the boxes on the straight way to where it is found."""
        assert self.time is not None
        sightings = self._sightings[row]
        (start, before), own = sightings.seen[-1], sightings.filter
        times = [each for each in self._times if start < each < self.time]
        if own is None or not times:
            return
        at = start
        for time in times[:: -(-len(times) // _MOST_STEPS)]:
            own = own.advance(np.array(time - at))
            share = (time - start) / (self.time - start)
            own.correct(np.array([0]), (before + share * (box - before))[None])
            at = time
        own = own.advance(np.array(self.time - at))
        for whole, part in zip(
            (self._motion.position, self._motion.velocity, self._motion.variance),
            (own.position, own.velocity, own.variance),
            strict=True,
        ):
            whole[row] = part[0]

    def _begin(self, objects: Rows, boxes: Floats, time: float, first: bool, rows: NDArray[np.int64]) -> None:
        super()._begin(objects, boxes, time, first, rows)
        for row, each in zip(rows[objects].tolist(), objects.tolist(), strict=True):
            self._sightings.append(_Sightings([(time, boxes[each])], self._motion[np.array([row])]))

    def _keep(self, rows: Rows) -> None:
        super()._keep(rows)
        self._sightings = [self._sightings[row] for row in rows.tolist()]
