"""VirtualClock: the time of simulated devices, which advances from event to event without waiting."""

from __future__ import annotations


class VirtualClock:
    """A clock that does not move until the engine of its device advances it.

    >>> clock = VirtualClock()
    >>> clock.now()
    0.0
    """

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def advance_to(self, moment: float) -> None:
        """Set the time, never backwards. Only engines call this: use `AccelModel.run_until` to let time pass."""
        self._now = max(self._now, moment)
