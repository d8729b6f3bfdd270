"""How long one request waits in queues, and how long it runs."""

from __future__ import annotations

import time

from hami import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_VISITS = "hami.visits"  # the key under which the core takes what records the nodes of a request


class RequestTimes:
    """The time that one request waits in the queues of nodes, and the time until its batches end.

    >>> request = {"data": 1}
    >>> with hami.pipe("Identity") as pipe, hami.observe.RequestTimes(request) as times:
    ...     pipe(request)["result"]
    1
    >>> times.queue_s >= 0 and times.compute_s > 0
    True

    A node that the request has not left counts until now. Branches and parts of the request at several nodes at a
    time are added.

    Args:
        request: The request. It has one more key inside the block.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self._visits = request.setdefault(_VISITS, _core.record_visits())

    def __enter__(self) -> RequestTimes:
        return self

    def __exit__(self, *_: object) -> None:
        self._request.pop(_VISITS, None)

    @property
    def queue_s(self) -> float:
        """Seconds in queues."""
        return sum(waited for waited, _ in self._spent()) / 1e9

    @property
    def compute_s(self) -> float:
        """Seconds from the start of a batch until the request has left the node."""
        return sum(ran for _, ran in self._spent()) / 1e9

    def _spent(self) -> Iterator[tuple[int, int]]:
        """Yield the nanoseconds that the request has waited and run at each node."""
        now = time.monotonic_ns()
        for _, arrived, started, ended, _ in _core.visits_in(self._visits):
            end = now if ended is None else ended
            begin = end if started is None else started
            yield begin - arrived, end - begin
