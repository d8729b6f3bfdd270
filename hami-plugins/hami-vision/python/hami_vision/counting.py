"""Counter: counts the tracked objects of one stream that cross lines and that are in zones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hami_vision.detections import Detections

Point = tuple[float, float]
MOST_VISITS = 1000  # complete ones that a zone keeps: a camera sees new objects for years, and each answer has all


@dataclass
class Visits:
    """The state of a zone, by (class, id): since when an object is inside, and the seconds of its other visits."""

    inside: dict[tuple[int, int], float] = field(default_factory=dict)
    dwell: dict[tuple[int, int], float] = field(default_factory=dict)
    entered: int = 0


class Counter:
    """Crossings of lines, and visits of zones.

    An object is where the middle of the lower edge of its box is. It crosses a line if the way from where it was seen
    last to where it is now cuts the line; so a crossing that was not seen counts once. "in" is from the left of the
    line to its right, as seen from its first point to its second one.

    Args:
        lines: Two points of each.
        zones: The corners of each polygon.
        max_lost: Seconds after which an object that is not seen is forgotten.
    """

    def __init__(
        self, lines: Mapping[str, tuple[Point, Point]], zones: Mapping[str, list[Point]], max_lost: float = 2.0
    ) -> None:
        self._lines, self._zones, self._max_lost = lines, zones, max_lost
        self._last: dict[tuple[int, int], tuple[Point, float]] = {}
        self._crossings = {name: {"in": 0, "out": 0} for name in lines}
        self._visits = {name: Visits() for name in zones}
        self._seen = 0

    def update(self, found: Detections, time: float) -> None:
        """Take the next frame. Objects without an id do not count."""
        ids = [] if found.ids is None else found.ids.tolist()
        for i, number in enumerate(ids):
            if number < 0:
                continue
            key = (int(found.classes[i]), number)
            x1, _, x2, y2 = found.boxes[i].tolist()
            point = ((x1 + x2) / 2, y2)
            if key in self._last:
                self._cross(self._last[key][0], point)
            else:
                self._seen += 1
            for name, corners in self._zones.items():
                self._visit(self._visits[name], key, is_inside(point, corners), time)
            self._last[key] = (point, time)
        for key in [key for key, (_, seen) in self._last.items() if time - seen > self._max_lost]:
            for visits in self._visits.values():
                self._visit(visits, key, False, self._last[key][1])
            del self._last[key]

    def counts(self) -> dict[str, Any]:
        """Return the counts so far.

        Returns:
            {"objects": int, "lines": {name: {"in": int, "out": int}}, "zones": {name: {"inside": int, "entered": int,
            "dwell": [{"class": int, "id": int, "seconds": float}]}}}. Dwell is of visits that go on, and of the last
            MOST_VISITS objects whose visits are complete. Two classes may have objects of one id.
        """
        return {
            "objects": self._seen,
            "lines": {name: dict(each) for name, each in self._crossings.items()},
            "zones": {name: self._shown(visits) for name, visits in self._visits.items()},
        }

    def _shown(self, visits: Visits) -> dict[str, Any]:
        dwell = dict(visits.dwell)
        for key, since in visits.inside.items():
            dwell[key] = dwell.get(key, 0.0) + self._last[key][1] - since
        return {
            "inside": len(visits.inside),
            "entered": visits.entered,
            "dwell": [{"class": kind, "id": number, "seconds": each} for (kind, number), each in dwell.items()],
        }

    def _cross(self, before: Point, now: Point) -> None:
        for name, (start, end) in self._lines.items():
            sides = _side(start, end, before) >= 0, _side(start, end, now) >= 0
            if sides[0] == sides[1]:
                continue
            ends = _side(before, now, start), _side(before, now, end)
            if min(ends) <= 0 <= max(ends):
                self._crossings[name]["in" if sides[1] else "out"] += 1

    def _visit(self, visits: Visits, key: tuple[int, int], is_inside: bool, time: float) -> None:
        if is_inside and key not in visits.inside:
            visits.inside[key] = time
            visits.entered += 1
        elif not is_inside and key in visits.inside:
            visits.dwell[key] = visits.dwell.pop(key, 0.0) + time - visits.inside.pop(key)  # now the newest one
            if len(visits.dwell) > MOST_VISITS:
                del visits.dwell[next(iter(visits.dwell))]


def _side(start: Point, end: Point, point: Point) -> float:
    """Return a number above 0 on the right of the line, as y points down."""
    return (end[0] - start[0]) * (point[1] - start[1]) - (end[1] - start[1]) * (point[0] - start[0])


def is_inside(point: Point, corners: list[Point]) -> bool:
    """Return whether a ray to the right cuts an odd number of sides."""
    inside = False
    x, y = point
    for (x1, y1), (x2, y2) in zip(corners, [*corners[1:], corners[0]], strict=True):
        if (y1 > y) != (y2 > y) and x < x1 + (y - y1) / (y2 - y1) * (x2 - x1):
            inside = not inside
    return inside
