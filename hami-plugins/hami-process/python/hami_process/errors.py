"""The errors that only a backend in another process has."""

from __future__ import annotations

import signal

import hami


class ChildDied(hami.RequestError):
    """The process of a backend ended while it ran a request, or before it could.

    `signal` is the number of the signal that ended it, as in `signal.SIGSEGV`; None: it exited with `exit_code`.
    """

    def __init__(self, message: str, returncode: int | None = None) -> None:
        super().__init__(message)
        self.signal = -returncode if returncode is not None and returncode < 0 else None
        self.exit_code = returncode if self.signal is None else None


class SharedMemoryFull(hami.RequestError):
    """The arrays of a batch need more shared memory than its limit, or than the system has."""


class ChildTraceback(Exception):
    """The traceback in the other process, as text. It is the cause of an exception that comes from there."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}" if self.args else ""


def how_it_ended(returncode: int | None) -> str:
    """Return what a status of a process says, for messages."""
    if returncode is None:
        return "ended"
    if returncode >= 0:
        return f"exited with status {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    # The only trace of the OOM killer of the kernel.
    hint = "; the kernel sends it when memory has run out" if name == "SIGKILL" else ""
    return f"was ended by {name} (signal {-returncode}){hint}"
