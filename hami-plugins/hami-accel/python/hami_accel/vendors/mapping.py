"""How priorities, cores and quantisation of a task map to what each vendor's runtime takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import hami

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


class Mapping(NamedTuple):
    """One row of the table in the README."""

    scale: Scale | None  # None: the runtime has no priorities, the engine alone orders the tasks
    cores: str  # the vendor's argument that takes the core; empty: the runtime chooses
    first_core: int  # the vendor's value for core 0
    core_bits: bool  # whether that argument is a mask, with one bit per core
    quantisation: str  # what the inputs and outputs of a quantised model are

    def core(self, core: int) -> int:
        """Return the vendor's value for a core.

        >>> MAPPINGS["rknn"].core(2), MAPPINGS["hbm"].core(2)
        (4, 2)
        """
        return self.first_core << core if self.core_bits else self.first_core + core


MAPPINGS = {
    # The property MODEL_PRIORITY, fixed when a model is compiled, so the device does not set it.
    "openvino": Mapping(Scale(("LOW", "MEDIUM"), "HIGH"), "", 0, False, "integers without scale"),
    # set_scheduling_params takes 0 to 255; 254 and 255 preempt there too.
    "hbm": Mapping(Scale(tuple(range(254)), 255), "bpu_cores", 0, False, "integers with scale and zero point"),
    "rknn": Mapping(None, "core_mask", 1, True, "real values; the runtime quantises"),
    # HAILO_SCHEDULER_PRIORITY_MIN to _MAX, of a configured model.
    "hailo": Mapping(Scale(tuple(range(31)), 31), "", 0, False, "integers with scale and zero point"),
}


def model_number(select: int | str, names: Sequence[str], device: str) -> int:
    """Return the number of the selected model, or raise hami.ConfigError."""
    number: Any = names.index(select) if select in names else select
    if not isinstance(number, int) or not 0 <= number < len(names):
        expected = f"0 to {len(names) - 1} or one of {list(names)}"
        raise hami.ConfigError(f"{device}: select must be {expected}, got {select!r}")
    return number
