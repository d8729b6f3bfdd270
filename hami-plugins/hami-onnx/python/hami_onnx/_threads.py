"""How many threads a session may use: what this process may use of the machine, not what the machine has."""

from __future__ import annotations

import math
import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # "200000 100000": microseconds of CPU per period; "max" is no limit


def usable_cores() -> int:
    """Return the cores this process may use: its affinity, further limited by a container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _quota(cores)))


def _quota(cores: int) -> int:
    try:
        quota, period = _QUOTA.read_text().split()
        return cores if quota == "max" else math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return cores
