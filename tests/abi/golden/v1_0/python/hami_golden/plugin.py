"""Registers both libraries."""

from pathlib import Path
from typing import Any

import pluggy


@pluggy.HookimplMarker("hami")
def hami_register(registry: Any) -> None:
    for name in ("plain.so", "full.so"):
        registry.add_library(Path(__file__).with_name(name))
