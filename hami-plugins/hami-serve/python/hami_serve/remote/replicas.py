"""Which replica gets a request: the least busy one that works. No threads, no clock: callers pass the time.

Each replica has a circuit. A failure is a connection that is refused or lost, or an answer that says "not available".

    closed ──`FAILURES` failures in a row──> open ──after `recovery` seconds──> half-open ──success──> closed
                                              ^──────────────failure───────────────┘

An open circuit takes no request, a half-open one takes one at a time.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

FAILURES = 3  # in a row: one or two may be connections that the server has closed because they were idle


class Circuit(Enum):
    """The state of the circuit of a replica."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(eq=False)
class Replica:
    """One server, the requests that it has now, and its circuit."""

    url: str
    in_flight: int = 0
    used: int = 0  # ticks: the replica that was used longest ago goes first among equally busy ones
    failures: int = 0  # in a row
    opens_at: float = 0.0  # when the circuit becomes half-open

    def circuit(self, now: float) -> Circuit:
        if self.failures < FAILURES:
            return Circuit.CLOSED
        return Circuit.OPEN if now < self.opens_at else Circuit.HALF_OPEN

    def takes_requests(self, now: float) -> bool:
        circuit = self.circuit(now)
        return circuit is Circuit.CLOSED or (circuit is Circuit.HALF_OPEN and not self.in_flight)


class Replicas:
    """The replicas of one model. It is used by one thread."""

    def __init__(self, urls: Sequence[str], recovery: float) -> None:
        self.all = tuple(map(Replica, urls))
        self._recovery = recovery
        self._ticks = 0

    def choose(self, now: float, tried: Collection[Replica] = (), sequence: str | int | None = None) -> Replica | None:
        """Return a replica for a request, rather one that the request has not tried; None if all circuits are open.

        All requests of a sequence go to the same replica, which keeps its state.
        """
        known = self.all
        if sequence is not None:
            known = (known[zlib.crc32(str(sequence).encode()) % len(known)],)
        usable = [replica for replica in known if replica.takes_requests(now)]
        return min(
            usable, key=lambda replica: (replica in tried, replica.in_flight, replica.used, replica.url), default=None
        )

    def begin(self, replica: Replica) -> None:
        self._ticks += 1
        replica.used = self._ticks
        replica.in_flight += 1

    def end(self, replica: Replica, now: float, works: bool | None) -> None:
        """End a request. `works` is whether the replica has answered; None if the request was given up before."""
        replica.in_flight -= 1
        if works:
            replica.failures = 0
        elif works is False:
            replica.failures += 1
            replica.opens_at = now + self._recovery
