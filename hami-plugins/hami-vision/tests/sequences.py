"""Sequences of moving boxes as a detector sees them: noise, gaps, low scores and false objects, all by a seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hami_vision import Detections
from hami_vision.tracking import assign, overlaps_of

RATE = 25  # frames per second
WIDTH, HEIGHT, SIDE = 640, 480, 40  # pixels


class Seen(NamedTuple):
    """One frame: its time, what a detector finds, and the true boxes by the number of the object."""

    time: float
    found: Detections
    truth: dict[int, NDArray[np.float64]]


def sequence(seed: int, frames: int = 150, objects: int = 12, gap: int = 12) -> Iterator[Seen]:
    """Yield frames of objects that turn now and then; each is hidden `gap` frames long once."""
    random = np.random.default_rng(seed)
    place = random.uniform((SIDE, SIDE), (WIDTH - SIDE, HEIGHT - SIDE), (objects, 2))
    angle = random.uniform(0, 2 * np.pi, objects)
    speed = random.uniform(2, 6, objects)
    hidden = random.integers(20, frames - gap, objects)
    for i in range(frames):
        angle += random.normal(0, 0.05, objects)
        step = speed[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
        beyond = (place + step < SIDE) | (place + step > (WIDTH - SIDE, HEIGHT - SIDE))
        step = np.where(beyond, -step, step)
        angle = np.arctan2(step[:, 1], step[:, 0])
        place = place + step
        boxes = np.hstack([place - SIDE / 2, place + SIDE / 2])
        shown = [n for n in range(objects) if not hidden[n] <= i < hidden[n] + gap]
        seen = boxes[shown] + random.normal(0, 1.0, (len(shown), 4))
        scores = np.where(random.random(len(shown)) < 0.1, random.uniform(0.15, 0.45, len(shown)), 0.9)
        if random.random() < 0.2:
            corner = random.uniform(0, 400, 2)
            seen, scores = np.vstack([seen, [*corner, *(corner + SIDE)]]), np.append(scores, 0.7)
        truth = {n: boxes[n] for n in shown}
        yield Seen(i / RATE, Detections(seen, scores, np.zeros(len(seen))), truth)


class ByOverlap:
    """The reference: an object continues the track of the last second whose last box it overlaps most."""

    def __init__(self) -> None:
        self._boxes = np.zeros((0, 4))
        self._times = np.zeros(0)  # of each track that ever began; its number is its id

    def update(self, found: Detections, time: float) -> NDArray[np.int64]:
        boxes, ids = found.boxes.astype(float), np.full(len(found), -1)
        recent = np.flatnonzero(time - self._times <= 1)
        overlaps = overlaps_of(self._boxes[recent], boxes)
        assign(overlaps, overlaps, 0.3, recent, np.arange(len(found)), ids)
        new = np.flatnonzero(ids < 0)
        ids[new] = len(self._times) + np.arange(len(new))
        self._boxes = np.vstack([self._boxes, boxes[new]])
        self._times = np.append(self._times, np.full(len(new), time))
        self._boxes[ids], self._times[ids] = boxes, time
        return ids


def switches(frames: list[Seen], ids: list[NDArray[np.int64]]) -> int:
    """Return how often the id of a true object is another one than before; boxes are matched by their centres."""
    last: dict[int, int] = {}
    count = 0
    for frame, given in zip(frames, ids, strict=True):
        centres = (frame.found.boxes[:, :2] + frame.found.boxes[:, 2:]) / 2
        for number, box in frame.truth.items():
            distance = np.abs(centres - (box[:2] + box[2:]) / 2).max(1)
            nearest = int(distance.argmin()) if len(distance) else -1
            if nearest < 0 or distance[nearest] > SIDE / 4 or given[nearest] < 0:
                continue
            count += last.get(number, given[nearest]) != given[nearest]
            last[number] = given[nearest]
    return count
