"""A plugin that declares a name in its metadata and does not register it."""

import hami
import pluggy


class AcmeKept(hami.Backend):
    def forward(self, batch):
        for item in batch:
            item["result"] = item["data"]


@pluggy.HookimplMarker("hami")
def hami_register(registry):
    registry.add(AcmeKept)
