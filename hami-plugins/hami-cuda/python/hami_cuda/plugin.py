"""Registers the native library with the core. The NVIDIA driver is loaded when a pipe uses the first backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add_library(Path(__file__).with_name("cuda_tensors.so"), {})


@hookimpl
def hami_report() -> dict[str, str]:
    from hami_cuda._driver import describe

    return {"CUDA driver": describe()}
