"""Ends a process that a backend forked on a thread of the core: what called the backend is the parent's."""

from __future__ import annotations


def end(error: BaseException | None) -> None:
    """End as a program does: with 0, with what SystemExit says, or with 1 behind a traceback."""
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
