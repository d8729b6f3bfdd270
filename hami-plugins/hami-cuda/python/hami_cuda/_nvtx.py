"""Loads NVTX, which hands ranges to a profiler, from a package that contains it."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

from hami_cuda._libraries import installed

PLACES = (("nvidia", "nvidia/cu*/lib/libnvtx3interop.so.1"), ("nvidia", "nvidia/nvtx/lib/libnvToolsExt.so.1"))


def load() -> None:
    """Load it if a profiler started this process. The native code then finds it by its name, as one of the system."""
    if os.environ.get("NVTX_INJECTION64_PATH"):
        for path in installed(PLACES):
            with suppress(OSError):
                ctypes.CDLL(str(path))
                return
