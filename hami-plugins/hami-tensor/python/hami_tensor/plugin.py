"""Registers the native library with the core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add_library(Path(__file__).with_name("tensor.so"))
