"""What this process uses of the machine: CPU time and memory."""

from __future__ import annotations

import resource
from pathlib import Path


def rss_mib() -> float:
    """Return the resident memory of this process."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return pages * resource.getpagesize() / 2**20


def cpu_seconds() -> float:
    """Return the CPU time of all threads of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
