"""The log of a server: a thread writes its lines, so that a reader that is slow does not stop the server."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from hami_serve.errors import kind_of

MAX_LINES = 1000  # that wait to be written; more of them are dropped and counted
LAST_LINES_S = 1.0  # for the lines that wait when the server ends
FORMAT = "hami serve: %(message)s"


class JsonFormatter(logging.Formatter):
    """Makes each message one line of JSON: time, level, logger, message, and the fields of the attribute `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        given: Any = getattr(record, "fields", None)
        fields = given if isinstance(given, dict) else {}
        line = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
            **fields,
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _as_given(record: logging.LogRecord) -> str:
    try:
        return f"{record.msg!r} {record.args!r}"
    except BaseException as error:
        return f"a message of {record.name} cannot be formatted: {kind_of(error)}"


class Lines(logging.Handler):
    """Writes lines to a file descriptor. It never waits, and says later how many lines it has dropped."""

    def __init__(self, descriptor: int, *, as_json: bool = False) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter() if as_json else logging.Formatter(FORMAT))
        self._descriptor = descriptor
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MAX_LINES)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="hami-serve-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except BaseException:  # the arguments do not fit the message, or are objects of a backend
            record.msg, record.args = _as_given(record), ()
            record.exc_info = record.exc_text = None
            text = self.format(record)
        line = text.encode("utf-8", "backslashreplace") + b"\n"
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
                    text = f"{dropped} messages of the log were dropped, because it was read too slowly"
                    record = logging.LogRecord("hami.serve", logging.WARNING, "", 0, text, None, None)
                    self._write(self.format(record).encode() + b"\n")

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
def logging_to(descriptor: int, *, as_json: bool = False) -> Iterator[None]:
    """Write the log to a file descriptor, unless the program has said where it goes."""
    root = logging.getLogger()
    if root.handlers:
        yield
        return
    handler = Lines(descriptor, as_json=as_json)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
