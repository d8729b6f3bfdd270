"""CountObjects: counts tracked objects that cross lines and that are in zones."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

import hami

from hami_vision.counting import Counter, Point
from hami_vision.detections import detections_of, state_of


class CountObjects(hami.Backend):
    """Count the tracked objects of a stream that cross lines and that are in zones.

    data: hami_vision.Detections with ids, the result of TrackObjects
    result: {"detections", "objects", "lines": {name: {"in", "out"}}, "zones": {name: {"inside", "entered", "dwell"}}}

    It works inside StateFul, as TrackObjects does: `StateFul[S[TrackObjects, CountObjects]]`.
    """

    max = 1024
    thread = "concurrent"
    lightweight = True

    lines: Annotated[list[str], 'a name and two points in pixels: "door: 0,240, 640,240"'] = []  # noqa: RUF012
    zones: Annotated[list[str], 'a name and at least 3 points in pixels: "shop: 0,0, 90,0, 90,90"'] = []  # noqa: RUF012
    classes: Annotated[list[str], "names or numbers of the classes that count; none: all"] = []  # noqa: RUF012
    forget_after: Annotated[float, "seconds after which an object that is not seen is forgotten"] = 2.0

    def init(self, options: Any) -> None:
        lines = _named("lines", self.lines, 2, 2)
        self._lines = {name: (points[0], points[1]) for name, points in lines.items()}
        self._zones = _named("zones", self.zones, 3, math.inf)
        self._classes: list[str | int] = [int(each) if each.isdecimal() else each for each in self.classes]

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            try:
                self._count(item)
            except hami.Error as error:
                item.fail(error)

    def _count(self, item: Any) -> None:
        found = detections_of(item, "CountObjects")
        if found.ids is None or found.time is None:
            raise hami.RequestError("CountObjects: the objects have no ids; put TrackObjects before it")
        counter: Counter = state_of(item, "CountObjects", lambda: Counter(self._lines, self._zones, self.forget_after))
        wanted = found.of_class(*self._classes) if self._classes else found
        counter.update(wanted, found.time)
        item["result"] = {"detections": wanted, **counter.counts()}


def _named(parameter: str, texts: list[str], least: int, most: float) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    entries: list[str] = []
    for text in texts:
        # A list that is given as one text, such as by --set, was cut at each comma. A name begins each entry.
        if entries and not re.search("[:,]", text):
            entries[-1] += f",{text}"
        else:
            entries.append(text)
    for text in entries:
        name, points = _points_of(text, parameter, least, most)
        if name in found:
            raise hami.ConfigError(f'CountObjects: {parameter} has the name "{name}" twice; give each its own')
        found[name] = points
    return found


def _points_of(text: str, parameter: str, least: int, most: float) -> tuple[str, list[Point]]:
    name, colon, numbers = text.partition(":")
    try:
        values = [float(each) for each in numbers.split(",")]
    except ValueError:
        values = []
    if not colon or len(values) % 2 or not least <= len(values) // 2 <= most or not all(map(math.isfinite, values)):
        wanted = "2 points" if most == 2 else "at least 3 points"
        raise hami.ConfigError(
            f'CountObjects: {parameter} has a name and {wanted} in pixels, such as "door: 0,240, 640,240", got {text!r}'
        )
    return name.strip(), list(zip(values[::2], values[1::2], strict=True))
