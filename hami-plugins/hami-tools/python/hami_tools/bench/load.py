"""Load: how the requests of a measurement arrive."""

from __future__ import annotations

import random
from dataclasses import dataclass

MANY = 10_000  # requests per second, which are shown as a whole number


@dataclass(frozen=True)
class Load:
    """A closed loop of clients, or an open loop if `rate` or `arrivals` is set."""

    clients: int = 1
    """Threads of the closed loop, each with one call at a time."""
    per_call: int = 1
    """Requests of one call."""
    rate: float | None = None
    """Requests per second of an open loop with Poisson arrivals."""
    arrivals: tuple[float, ...] = ()
    """Moments of an open loop, in seconds."""
    calls: int | None = None
    """Calls of the closed loop; None: as many as fit into the time."""

    @property
    def is_open(self) -> bool:
        """Whether requests arrive at given moments."""
        return self.rate is not None or bool(self.arrivals)

    def __str__(self) -> str:
        if self.rate is not None:
            return f"rate {self.rate:.4g}" if self.rate < MANY else f"rate {self.rate:.0f}"
        if self.arrivals:
            return f"trace of {len(self.arrivals)}"
        if self.calls is not None:
            return f"{self.calls} x {self.per_call}"
        return f"clients {self.clients}" + (f", {self.per_call} per call" if self.per_call > 1 else "")


def poisson(rate: float, seconds: float, seed: int = 0) -> tuple[float, ...]:
    """Return the moments of Poisson arrivals; at least one."""
    choose = random.Random(seed)
    arrivals: list[float] = []
    moment = choose.expovariate(rate)
    while moment < seconds or not arrivals:
        arrivals.append(moment)
        moment += choose.expovariate(rate)
    return tuple(arrivals)
