"""TrackObjects: gives the objects of a stream ids that stay from frame to frame."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import hami

from hami_vision.detections import detections_of, state_of
from hami_vision.tracking import Rules, Tracker


class TrackObjects(hami.Backend):
    """Give the objects of a stream ids that stay from frame to frame (ByteTrack, OC-SORT or BoT-SORT).

    data: hami_vision.Detections
    result: the same with `ids`; -1 where an object has none yet

    `StateFul[TrackObjects]` keeps the tracks of each stream by `req_id`. The key `time` says when the frame was taken,
    in seconds; without it, frames follow each other at `frame_rate`. With it, dropped frames do not change ids.
    """

    max = 1024
    thread = "concurrent"
    lightweight = True

    method: Annotated[
        Literal["bytetrack", "oc-sort", "bot-sort"], "how objects are matched; bot-sort needs the package trackers"
    ] = "bytetrack"
    high: Annotated[float, "objects with a score above it are matched first"] = 0.5
    low: Annotated[float, "objects with a score above it can continue a track"] = 0.1
    new: Annotated[float, "objects with a score above it can begin a track"] = 0.6
    max_lost: Annotated[float, "seconds for which an object that is not seen keeps its id"] = 1.0
    frame_rate: Annotated[float, "frames per second of streams whose requests have no `time`"] = 30.0

    def init(self, options: Any) -> None:
        if not self.low <= self.high <= self.new or self.max_lost < 0 or self.frame_rate <= 0:
            raise hami.ConfigError(
                "TrackObjects: low <= high <= new, max_lost at least 0 and frame_rate above 0 are needed, got "
                f"low={self.low}, high={self.high}, new={self.new}, max_lost={self.max_lost}, "
                f"frame_rate={self.frame_rate}"
            )
        self._rules = Rules(self.high, self.low, self.new, self.max_lost)
        self._method = _method(self.method)
        self._method(self._rules)  # a package that is missing is an error now

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            try:
                self._track(item)
            except hami.Error as error:
                item.fail(error)

    def _track(self, item: Any) -> None:
        found = detections_of(item, "TrackObjects")
        tracker = state_of(item, "TrackObjects", lambda: self._method(self._rules))
        time = item.get("time", None)
        if time is None:
            time = 0.0 if tracker.time is None else tracker.time + 1 / self.frame_rate
        try:
            seconds = float(time)
            ids = tracker.update(found, seconds, *self._image_of(item, tracker))
        except (ValueError, TypeError, OverflowError) as error:
            raise hami.RequestError(f"TrackObjects: {error}; the request has no effect on the tracks") from None
        item["result"] = replace(found, ids=ids, time=seconds)

    @staticmethod
    def _image_of(item: Any, tracker: Any) -> tuple[Any, ...]:
        if not getattr(tracker, "needs_image", False):
            return ()
        image = item.get("image", None)
        if image is None:
            raise hami.RequestError(
                "TrackObjects: bot-sort needs the picture in the key `image`, as LetterBoxInput writes it"
            )
        return (image,)


def _method(name: str) -> Any:
    """Return the class of a method; its module is imported only then."""
    if name == "bytetrack":
        return Tracker
    if name == "oc-sort":
        from hami_vision.oc_sort import OcSortTracker

        return OcSortTracker
    from hami_vision.installed_trackers import BotSortTracker

    return BotSortTracker
