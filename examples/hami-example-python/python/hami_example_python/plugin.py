"""Tells hami-core which backends there are; each is imported when it is used."""

import pluggy


@pluggy.HookimplMarker("hami")
def hami_register(registry):
    registry.add("HamiExamplePython", "hami_example_python.backend:HamiExamplePython")
