"""Registers the library that contains the backends of this plugin."""

from pathlib import Path
from typing import Any

import pluggy


@pluggy.HookimplMarker("hami")
def hami_register(registry: Any) -> None:
    registry.add_library(Path(__file__).with_name("hami_example_cpp.so"))
