"""Closes open pipes when the interpreter exits, before which the threads of the core must end; ends forked children."""

from __future__ import annotations

import os
from _thread import RLock  # the lock that threading provides, without the import of threading
from _weakrefset import WeakSet  # the set that weakref provides, without the import of weakref

from hami import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Pipe(Protocol):
        """A `hami.Pipe`."""

        _core: _core.Pipe

        def close(self, timeout: float | None = ...) -> None: ...


GRACE_PERIOD_S = 10.0  # for all requests and inits together that are still running when the program exits
CLOSE_S = 10.0  # for the end of what has been cancelled, which the core gives one second

_open_pipes: WeakSet[Pipe] = WeakSet()
_exiting = False

# Without the GIL, CPython 3.13 crashes if two threads register an exit handler at the same time.
_registration = RLock()
os.register_at_fork(
    before=_registration.acquire, after_in_parent=_registration.release, after_in_child=_registration.release
)


def close_at_exit(*pipes: Pipe) -> None:
    """Close these pipes, and wait for detached inits, before the interpreter exits."""
    with _registration:
        if not _open_pipes:
            import atexit

            atexit.unregister(_close_all)  # last registered, first called: before the handlers of the program so far
            atexit.register(_close_all)
        _open_pipes.update(pipes)


def _close_all() -> None:
    import time
    import traceback

    global _exiting
    _exiting = True
    begun = time.monotonic()
    until = begun + GRACE_PERIOD_S

    def left() -> float:
        return max(0.0, until - time.monotonic())

    late = []
    for pipe in list(_open_pipes):
        try:
            if left() and pipe._core.finish(left()):  # the requests of the others continue meanwhile
                pipe.close(left())
            else:
                late.append(pipe)
        except KeyboardInterrupt:  # Ctrl-C: do not wait for the other pipes
            until = 0.0
            late.append(pipe)
        except Exception:  # for example a warning that is configured as an error: close the other pipes too
            traceback.print_exc()
    from contextlib import suppress

    with suppress(KeyboardInterrupt):
        for pipe in late:
            pipe._core.close_in_background()  # all at once: it gives running backends one second
        abandoned = [name for pipe in late for name in pipe._core.close(CLOSE_S)]
        try:
            warn_of_abandoned(abandoned, begun)
        except Exception:  # as above
            traceback.print_exc()
        _core.wait_for_detached_inits(left())
        _core.trace_stop()


def pause_if_exiting() -> None:
    """Delay a daemon thread whose pipe was closed because the program exits.

    Otherwise the thread would print the traceback of PipeClosed while the interpreter shuts down, and CPython may abort
    in that. The interpreter ends the thread during the pause. If an exit handler waits for the thread instead, the
    exception is raised after the pause. Threads of the core look like daemon threads; they print nothing, and closing
    pipes wait for them, so they do not pause.
    """
    import threading
    import time

    if _exiting and not _core.on_core_thread() and threading.current_thread().daemon:
        time.sleep(5)


def warn_of_abandoned(backends: list[str], begun: float) -> None:
    """Warn of backends that have not returned; `begun` is when the wait for them began, by time.monotonic."""
    if backends:
        import time
        import warnings

        waited = time.monotonic() - begun
        warnings.warn(
            f"these backends did not return within {waited:.1f} s and were abandoned: {', '.join(backends)}",
            RuntimeWarning,
            stacklevel=3,
        )


def end_child(error: BaseException | None) -> None:
    """End a process that a backend forked on a thread of the core: only the parent continues the request.

    Exit with status 0, with the status of SystemExit, or with a traceback and status 1, as a program does.
    """
    import os
    import sys
    import traceback

    status = 1
    try:
        if error is None:
            status = 0
        elif not isinstance(error, SystemExit):
            traceback.print_exception(error)
        elif error.code is None or isinstance(error.code, int):
            status = error.code or 0
        else:
            print(error.code, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # even if flushing the streams failed
        os._exit(status & 0xFF)
