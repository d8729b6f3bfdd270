"""No client gets bytes of another one, and nothing stays behind, among plain, slow, broken and leaving clients."""

from __future__ import annotations

import os

import hami
from mixed_load import MODELS, REQUESTS, mixed_load


@hami.register
class TestEcho(hami.Backend):
    def forward(self, batch):
        for item in batch:
            item["result"] = item["data"]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_no_client_gets_bytes_of_another_one(start):
    server = start(MODELS | {"python": "TestEcho"})
    assert server.get("/v2/health/ready")[0] == 200
    before = descriptors()
    seen = mixed_load(server.port)
    assert seen.total() >= REQUESTS
    budget = server.serving.budget
    while descriptors() > before or budget.used or budget.outside():  # until the server has seen that all have left
        assert server.get("/v2/health/live")[0] == 200
    found = server.get("/v2/models/any/stats")[1]["model_stats"][0]["inference_stats"]
    assert found["success"]["count"] >= seen["plain"] // 2
    assert found["fail"]["count"] == 0
