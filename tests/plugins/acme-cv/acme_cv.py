"""A plugin that provides a name which acme-good provides too."""

import hami
import pluggy


class AcmeAdd(hami.Backend):
    """Adds a hundred."""

    def forward(self, batch):
        for item in batch:
            item["result"] = item["data"] + 100


@pluggy.HookimplMarker("hami")
def hami_register(registry):
    registry.add(AcmeAdd)
