"""The memory of all open requests of a server together: it is charged before it is used."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path

from hami_serve.errors import Overloaded, TooLarge

SHARE = 4  # of the memory of the machine, the default of a server has one part
RETRY_S = 0.02  # between tries of a call that waits for others to end
CGROUP = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def machine_memory() -> int:
    """Return the bytes of memory that this machine, or the container, has."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in CGROUP:
        try:
            found.append(int(path.read_text()))
        except (OSError, ValueError):  # there is none, or it is "max"
            continue
    return min(found)


def default_limit() -> int:
    return machine_memory() // SHARE


class Budget:
    """Bytes that the open requests of a server may have together. Threads that convert requests use it too."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.lock = threading.Lock()
        self.shared = ctypes.c_int64(0)  # `used`, for the native door
        self.outside: Callable[[], int] = lambda: 0  # bytes of the requests that are open there

    def lease(self, outside: int = 0) -> Lease:
        """Return a lease of one request, of which the native door has charged `outside` bytes already."""
        return Lease(self, outside)


class Lease:
    """What one request has of a budget. A request that is alone gets what it needs."""

    def __init__(self, budget: Budget, outside: int = 0) -> None:
        self._budget = budget
        self._outside = outside
        self._size = 0
        self._closed = False

    def resize(self, size: int) -> None:
        """Have `size` bytes from now on.

        Raises:
            Overloaded: The other open requests leave too few.
        """
        if size == self._size:
            return
        budget = self._budget
        with budget.lock:
            if self._closed:  # a thread still converts the request of a client that has left
                return
            used = budget.used - self._size + size
            outside = budget.outside()
            others = budget.used + outside - self._size - self._outside
            if used + outside > budget.limit and size > self._size and others > 0:
                raise Overloaded(
                    f"the open requests of this server have {budget.used + outside >> 20} of {budget.limit >> 20} MiB, "
                    f"and this one needs {max(size >> 20, 1)}; try again later"
                )
            budget.used, self._size = used, size
            budget.shared.value = used

    def take_over(self, size: int) -> None:
        """Also have `size` bytes that the native door has charged, and discharges then."""
        with self._budget.lock:
            if not self._closed:
                self._budget.used, self._size = self._budget.used + size, self._size + size
                self._budget.shared.value = self._budget.used

    def add(self, size: int) -> None:
        self.resize(self._size + size)

    def add_unbounded(self, size: int) -> None:
        """Have `size` more bytes of what has no limit for one request, as a body has.

        Raises:
            TooLarge: All open requests together may not have so many.
            Overloaded: The other open requests leave too few.
        """
        limit = self._budget.limit
        if self._size + size > limit:
            raise TooLarge(
                f"the request needs {self._size + size >> 20} MiB; the open requests of this server may have "
                f"{limit >> 20} MiB together (--max-open-mib)"
            )
        self.add(size)

    def close(self) -> None:
        budget = self._budget
        with budget.lock:  # at once: what a thread adds in between would stay charged
            self._closed = True
            budget.used, self._size = budget.used - self._size, 0
            budget.shared.value = budget.used

    async def wait(self, size: int, seconds: float) -> None:
        """Have `size` bytes as soon as others leave them, or raise Overloaded after some seconds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            try:
                return self.resize(size)
            except Overloaded:
                if loop.time() >= until:
                    raise
            await asyncio.sleep(RETRY_S)
