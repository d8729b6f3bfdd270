"""Hands the plugin's library to the core, and tells it where the installed OpenVINO is; imports neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pluggy

from hami_openvino._openvino import find_library, version

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add_library(Path(__file__).with_name("openvino_tensor.so"), {"library": str(find_library())})


@hookimpl
def hami_report() -> dict[str, str]:
    return {"openvino": version() or "of unknown version", "openvino library": str(find_library())}
