"""The entry module."""

import pluggy


@pluggy.HookimplMarker("hami")
def hami_register(registry):
    registry.add("AcmeEarly", "acme_late.early:Early")
    registry.add("AcmeLate", "acme_late.engine:Engine")
