"""How priorities 0 to 255 map to the priorities of each vendor's runtime."""

from __future__ import annotations

from typing import NamedTuple

from hami_accel.task import HIGH_PRIORITY


class Scale(NamedTuple):
    """A vendor's priorities: a value for each of equal parts of 0 to 253, and one for 254 and 255."""

    ordinary: tuple[int | str, ...]  # lowest first
    preempting: int | str

    def of(self, priority: int) -> int | str:
        """Return the vendor's priority.

        >>> Scale(("LOW", "MEDIUM"), "HIGH").of(127)
        'MEDIUM'
        """
        if priority >= HIGH_PRIORITY:
            return self.preempting
        return self.ordinary[priority * len(self.ordinary) // HIGH_PRIORITY]


# The README shows this table.
SCALES = {
    "openvino": Scale(("LOW", "MEDIUM"), "HIGH"),  # the property MODEL_PRIORITY
    "hbm": Scale(tuple(range(254)), 255),  # set_scheduling_params takes 0 to 255; 254 and 255 preempt there too
}
