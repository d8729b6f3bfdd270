"""BotSortTracker: ids by BoT-SORT of the package `trackers`, where that is installed."""

from __future__ import annotations

from typing import Any

import hami
import numpy as np
from numpy.typing import NDArray

from hami_vision.detections import NO_ID, Detections
from hami_vision.tracking import Rules, check_time

_FRAMES = 30  # per second: the unit of `lost_track_buffer` of that package


class BotSortTracker:
    """The tracks of one stream, by `trackers.BoTSORTTracker`, which finds the camera's motion in the pictures.

    Raises:
        hami.ConfigError: `trackers` is not installed.
    """

    needs_image = True

    def __init__(self, rules: Rules | None = None) -> None:
        try:
            import supervision
            import trackers
        except ImportError as error:
            raise hami.ConfigError(
                f"BoT-SORT is in the package trackers, which cannot be imported: {error}; pip install trackers, and "
                "then again opencv-python-headless, whose files it replaces"
            ) from error
        rules = rules or Rules()
        self._make: Any = supervision.Detections
        self._tracker: Any = trackers.BoTSORTTracker(
            lost_track_buffer=round(rules.max_lost * _FRAMES),
            track_activation_threshold=rules.new,
            high_conf_det_threshold=rules.high,
        )
        self.time: float | None = None

    def update(self, found: Detections, time: float, image: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the id of each object of the next frame; -1 where there is none yet.

        Raises:
            ValueError: Time went back or stood still. The tracks stay as they were.
        """
        check_time(self.time, time)
        self.time = time
        usable = np.flatnonzero(np.isfinite(found.boxes).all(1) & np.isfinite(found.scores))
        given = self._make(
            xyxy=found.boxes[usable],
            confidence=found.scores[usable],
            class_id=found.classes[usable],
            data={"row": usable},
        )
        tracked = self._tracker.update(given, frame=image, timestamp=time)
        ids = np.full(len(found), NO_ID)
        if len(tracked):  # in another order
            ids[tracked.data["row"]] = tracked.tracker_id
        return ids
