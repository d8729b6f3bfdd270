"""Registers the backends of this plugin; HAMi imports each one when it is first used."""

from typing import Any

import pluggy


@pluggy.HookimplMarker("hami")
def hami_register(registry: Any) -> None:
    registry.add("HamiExamplePython", "hami_example_python.backend:HamiExamplePython")
