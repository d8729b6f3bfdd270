"""`pipe.trace`: records the timeline of the process into a file for Perfetto."""

from __future__ import annotations

import os

from hami import _core
from hami._errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Trace:
    """A trace that is being recorded, from `pipe.trace`. Leaving its `with` block stops it.

    >>> with hami.pipe("Identity") as pipe, pipe.trace("run.pftrace") as trace:
    ...     request = pipe({"data": 1})
    >>> trace.events > 0, trace.lost, trace.error
    (True, 0, None)

    Attributes:
        path: The file.
        events: How many events were recorded, once it is stopped.
        lost: How many events were dropped because a thread recorded faster than the writer wrote.
        written: How many bytes the file has; with `last`, how many times it was written.
        error: Why recording ended early, such as a full disk, or None.
    """

    def __init__(self, path: str | os.PathLike[str], last: float | None = None, slow: float | None = None) -> None:
        if (last is None) != (slow is None):
            raise ConfigError("last and slow belong together: a trace keeps the `last` seconds for a `slow` request")
        for name, value in (("last", last), ("slow", slow)):
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(f"{name} must be a number of seconds above 0, got {value!r}")
        self.path = os.fspath(path)
        self.events = self.lost = self.written = 0
        self.error: str | None = None
        self._active = True
        _core.trace_start(self.path, last, slow)

    def stop(self) -> None:
        """Write what is left and end the trace; further calls have no effect.

        >>> with hami.pipe("Identity") as pipe:
        ...     trace = pipe.trace("run.pftrace")
        ...     trace.stop()
        """
        if not self._active:
            return
        self._active = False
        found: dict[str, Any] = _core.trace_stop()
        self.events, self.lost, self.written = found["events"], found["lost"], found["written"]
        self.error = found["error"] or None

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


_asked = False


def start_from_environment() -> None:
    """Start the trace that `HAMI_TRACE` names, once in a process and its forks; it ends with the process."""
    global _asked
    if _asked:
        return
    _asked = True
    path = os.environ["HAMI_TRACE"].replace("%p", str(os.getpid()))
    try:
        Trace(path)
    except ConfigError as error:
        raise ConfigError(f"HAMI_TRACE: {error}") from None
