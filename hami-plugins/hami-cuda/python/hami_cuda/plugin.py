"""Registers the native library with the core. The NVIDIA driver is loaded when a pipe uses the first backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pluggy

from hami_cuda import _nvtx
from hami_cuda._driver import describe
from hami_cuda._nvjpeg import find_library

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    _nvtx.load()
    nvjpeg = find_library()
    registry.add_library(Path(__file__).with_name("cuda_tensors.so"), {"library": nvjpeg} if nvjpeg else {})


@hookimpl
def hami_data_type(backend: str) -> str | None:
    return "bytes" if backend == "DecodeTensor" else None


@hookimpl
def hami_report() -> dict[str, str]:
    absent = "not found: DecodeTensor needs it: pip install hami-cuda[nvjpeg]"
    return {"CUDA driver": describe(), "nvJPEG": find_library() or absent}
