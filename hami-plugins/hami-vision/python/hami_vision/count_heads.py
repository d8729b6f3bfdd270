"""CountHeads: counts the heads of a crowd in a still picture."""

from __future__ import annotations

from typing import Annotated, Any

import hami

from hami_vision.count_objects import class_keys, points_by_name
from hami_vision.counting import is_inside
from hami_vision.detections import detections_of, finite_of


class CountHeads(hami.Backend):
    """Count the heads in a picture, and those in zones. A head is where the middle of its box is.

    data: hami_vision.Detections of a detector of heads; they need no ids
    result: {"detections", "heads", "zones": {name: {"inside"}}}
    """

    max = 1024
    thread = "concurrent"
    lightweight = True

    zones: Annotated[list[str], 'a name and at least 3 points in pixels: "stage: 0,0, 90,0, 90,90"'] = []  # noqa: RUF012
    classes: Annotated[list[str], "names or numbers of the classes that are heads; none: all"] = []  # noqa: RUF012

    def init(self, options: Any) -> None:
        self._zones = points_by_name("CountHeads", "zones", self.zones)
        self._classes = class_keys(self.classes)

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            try:
                item["result"] = self._count(item)
            except hami.Error as error:
                item.fail(error)

    def _count(self, item: Any) -> dict[str, Any]:
        found = detections_of(item, "CountHeads")
        heads = finite_of(self, found.of_class(*self._classes) if self._classes else found)
        middles = ((heads.boxes[:, :2] + heads.boxes[:, 2:]) / 2).tolist()
        zones = {
            name: {"inside": sum(is_inside(each, corners) for each in middles)} for name, corners in self._zones.items()
        }
        return {"detections": heads, "heads": len(heads), "zones": zones}
