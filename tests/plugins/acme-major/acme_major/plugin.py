"""The entry module."""

from pathlib import Path

import pluggy


@pluggy.HookimplMarker("hami")
def hami_register(registry):
    registry.add_library(Path(__file__).with_name("acme_major.so"))
