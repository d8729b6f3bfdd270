"""The log of a server: a thread writes its lines, so that a reader that is slow does not stop the server."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Iterator

MAX_LINES = 1000  # that wait to be written; more of them are dropped and counted
LAST_LINES_S = 1.0  # for the lines that wait when the server ends
FORMAT = "hami serve: %(message)s"


class Lines(logging.Handler):
    """Writes lines to a file descriptor. It never waits, and says later how many lines it has dropped."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(FORMAT))
        self._descriptor = descriptor
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MAX_LINES)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="hami-serve-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record).encode("utf-8", "backslashreplace") + b"\n"
        except Exception:  # the arguments do not fit the message
            line = f"hami serve: {record.msg!r} {record.args!r}\n".encode("utf-8", "backslashreplace")
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self._dropped += 1  # under the lock of the handler

    def _write_all(self) -> None:
        while (line := self._waiting.get()) is not None:
            self._write(line)
            if self._waiting.empty():
                self.acquire()
                dropped, self._dropped = self._dropped, 0
                self.release()
                if dropped:
                    self._write(
                        b"hami serve: %d messages of the log were dropped, because it was read too slowly\n" % dropped
                    )

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        with contextlib.suppress(OSError):  # the reader has left
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]

    def close(self) -> None:
        """Write what waits, if there is a reader."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
            self._thread.join(LAST_LINES_S)
        super().close()


@contextlib.contextmanager
def logging_to(descriptor: int) -> Iterator[None]:
    """Write the log to a file descriptor, unless the program has said where it goes."""
    root = logging.getLogger()
    if root.handlers:
        yield
        return
    handler = Lines(descriptor)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
