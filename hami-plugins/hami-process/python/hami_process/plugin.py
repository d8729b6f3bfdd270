"""Registers the backends of this package. They are imported when a pipeline uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add_library(Path(__file__).with_name("process.so"))
    registry.add("Process", "hami_process.backend:Process")
