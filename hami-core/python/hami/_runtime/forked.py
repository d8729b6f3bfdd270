"""Ends a child process that a backend forked on a thread of the core: only the parent continues the request."""

from __future__ import annotations


def end(error: BaseException | None) -> None:
    """Exit with status 0, with the status of SystemExit, or with a traceback and status 1, as a program does."""
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
