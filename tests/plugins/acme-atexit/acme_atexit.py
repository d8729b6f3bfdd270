"""A plugin that raises when the process ends."""

import atexit

import hami
import pluggy


class AcmeAtExit(hami.Backend):
    """Gives back its data."""

    def forward(self, batch):
        for item in batch:
            item["result"] = item["data"]


@atexit.register
def clean_up():
    raise RuntimeError("nothing to clean up")


@pluggy.HookimplMarker("hami")
def hami_register(registry):
    registry.add(AcmeAtExit)
