"""A backend that counts its instances, for tests of concurrent calls and cancelled callers."""

from __future__ import annotations

import threading

import hami
from together import LONG_S

from hami_serve import AllRounder


class Loaded:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = 0

    def add(self, number: int) -> None:
        with self._lock:
            self.now += number


LOADED = Loaded()


@hami.register
class TestCounted(hami.Backend):
    """Returns its word, and counts its instances."""

    word: str
    device: str = "cpu"

    def init(self, options):
        LOADED.add(1)

    def forward(self, batch):
        for item in batch:
            item["result"] = self.word

    def close(self):
        LOADED.add(-1)


def counted(word: str) -> dict[str, object]:
    return {"source": {"backend": "TestCounted", "word": word, "device": "cpu"}}


def wait_released(rounder: AllRounder) -> None:
    """Wait until no request is counted: a future has its result a moment before."""
    for _ in range(LONG_S * 100):
        if not any(model.in_flight for model in rounder.models()):
            return
        threading.Event().wait(0.01)
    raise AssertionError(rounder.table())
