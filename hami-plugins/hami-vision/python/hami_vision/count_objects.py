"""CountObjects: counts tracked objects that cross lines and that are in zones."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

import hami

from hami_vision.counting import Counter, Point
from hami_vision.detections import detections_of, finite_of, state_of


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
        lines = points_by_name("CountObjects", "lines", self.lines)
        self._lines = {name: (points[0], points[1]) for name, points in lines.items()}
        self._zones = points_by_name("CountObjects", "zones", self.zones)
        self._classes = class_keys(self.classes)

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
        counter.update(finite_of(self, wanted), found.time)
        item["result"] = {"detections": wanted, **counter.counts()}


def class_keys(texts: list[str]) -> list[str | int]:
    """Return names and numbers of classes."""
    return [int(each) if each.isdecimal() else each for each in texts]


def points_by_name(backend: str, parameter: str, texts: list[str]) -> dict[str, list[Point]]:
    """Return the points of each line, which has two, or zone, which has at least three.

    Raises:
        hami.ConfigError: A text is another one, or two have one name.
    """
    found: dict[str, list[Point]] = {}
    entries: list[str] = []
    for text in texts:
        # A list that is given as one text, such as by --set, was cut at each comma. A name begins each entry.
        if entries and not re.search("[:,]", text):
            entries[-1] += f",{text}"
        else:
            entries.append(text)
    for text in entries:
        name, points = _points_of(text, backend, parameter)
        if name in found:
            raise hami.ConfigError(f'{backend}: {parameter} has the name "{name}" twice; give each its own')
        found[name] = points
    return found


def _points_of(text: str, backend: str, parameter: str) -> tuple[str, list[Point]]:
    least, most = (2, 2.0) if parameter == "lines" else (3, math.inf)
    name, colon, numbers = text.partition(":")
    try:
        values = [float(each) for each in numbers.split(",")]
    except ValueError:
        values = []
    if not colon or len(values) % 2 or not least <= len(values) // 2 <= most or not all(map(math.isfinite, values)):
        wanted = "2 points" if most == 2 else "at least 3 points"
        raise hami.ConfigError(
            f'{backend}: {parameter} has a name and {wanted} in pixels, such as "door: 0,240, 640,240", got {text!r}'
        )
    return name.strip(), list(zip(values[::2], values[1::2], strict=True))
