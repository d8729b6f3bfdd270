"""usable_cores: the number of CPU cores that this process may use, which can be less than the machine has."""

from __future__ import annotations

import math
import os
from pathlib import Path

# "200000 100000": microseconds of CPU time per period in microseconds; "max 100000": no limit.
_CGROUP_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Return the number of cores that CPU affinity and the container's CPU quota allow."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _cores_of_quota(cores)))


def _cores_of_quota(cores: int) -> int:
    """Return the container's CPU quota in cores, rounded up, or `cores` if a quota cannot be read."""
    try:
        quota, period = _CGROUP_CPU_MAX.read_text().split()
        return cores if quota == "max" else math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return cores
