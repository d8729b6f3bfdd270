"""A plugin whose import takes long according to the clock, which it advances, so that no test waits."""

import time

import hami
import pluggy

clock = time.perf_counter
time.perf_counter = lambda: clock() + 2.5


class AcmeSlow(hami.Backend):
    """Gives back its data."""

    def forward(self, batch):
        for item in batch:
            item["result"] = item["data"]


@pluggy.HookimplMarker("hami")
def hami_register(registry):
    registry.add(AcmeSlow)
