"""A backend that counts its instances, for tests of concurrent calls and cancelled callers."""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary

import hami
from together import LONG_S

from hami_serve import AllRounder


class Loaded:
    """How many instances of a backend there are, and how many there were at most.

    Each test has its own: a load that nothing waits for may end during the next one.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.now = self.most = 0
        self.key = str(id(self))
        COUNTERS[self.key] = self

    def add(self, number: int) -> None:
        with self._changed:
            self.now += number
            self.most = max(self.most, self.now)
            self._changed.notify_all()

    def wait(self, number: int) -> None:
        """Wait until there are so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.now == number, LONG_S), f"{self.now} instances, not {number}"

    def component(self, word: str) -> dict[str, object]:
        """Return a component whose instances are counted here."""
        return {"source": {"backend": "TestCounted", "word": word, "counter": self.key, "device": "cpu"}}


COUNTERS: WeakValueDictionary[str, Loaded] = WeakValueDictionary()


@hami.register
class TestCounted(hami.Backend):
    """Returns its word, and counts its instances."""

    word: str
    counter: str
    device: str = "cpu"

    def init(self, options):
        self._loaded = COUNTERS[self.counter]
        self._loaded.add(1)

    def forward(self, batch):
        for item in batch:
            item["result"] = self.word

    def close(self):
        self._loaded.add(-1)


def wait_released(rounder: AllRounder) -> None:
    """Wait until no request is counted: a future has its result a moment before."""
    for _ in range(LONG_S * 100):
        if not any(model.in_flight for model in rounder.models()):
            return
        threading.Event().wait(0.01)
    raise AssertionError(rounder.table())
