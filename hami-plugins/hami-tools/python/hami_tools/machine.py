"""What the machine gives to this process: CPUs, and the limits of its container."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def cpus() -> float:
    """Return the number of CPUs that this process may use: the allowed ones, or the quota of the container."""
    quota = cpu_quota()
    allowed = float(allowed_cpus())
    return allowed if quota is None else min(allowed, quota)


def allowed_cpus() -> int:
    """Return the number of CPUs on which this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_quota(folder: Path = _CGROUP) -> float | None:
    """Return the CPUs that the control group allows on average; None: no limit."""
    text = _read(folder / "cpu.max").split()  # version 2: quota and period
    if not text:
        text = [_read(folder / "cpu" / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    try:
        quota, period = (float(part) for part in text)
    except ValueError:  # "max", or no control group
        return None
    return quota / period if quota > 0 and period > 0 else None


def memory_limit(folder: Path = _CGROUP) -> int | None:
    """Return the bytes that the control group allows; None: no limit."""
    text = _read(folder / "memory.max") or _read(folder / "memory" / "memory.limit_in_bytes")
    limit = int(text) if text.strip().isdecimal() else None
    return limit if limit is not None and limit < 1 << 60 else None  # version 1 writes a huge number for "no limit"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
