"""The journal of the native door: its threads note each request that they answer.

One thread here writes the lines of these requests in the access log, and records their spans.

Neither reading nor writing delays a request. Entries that come faster than this thread writes are dropped, and counted.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import hami

from hami_serve import access_log, tracing
from hami_serve.errors import short
from hami_serve.failures import log_fault
from hami_serve.model import Model

LAST_ENTRIES_S = 1.0  # for what is noted when the door closes
log = logging.getLogger("hami.serve")


class Entries(NamedTuple):
    """What was noted: the address of its JSON, which is valid until `release`."""

    address: int
    release: Callable[[], None]


class Journal:
    """Writes what a native door has noted, on a thread of its own."""

    def __init__(
        self, take: Callable[[], Entries | None], model: Callable[[int], Model], code_name: Callable[[int], str]
    ) -> None:
        """Begin to write.

        Args:
            take: Waits for entries; returns None at the end.
            model: Returns the model with a key.
            code_name: Returns the name of a status of gRPC.
        """
        self._take = take
        self._model = model
        self._code_name = code_name
        self._thread = threading.Thread(target=self._write_all, name="hami-serve-journal", daemon=True)
        self._thread.start()

    def close(self) -> bool:
        """Write what was noted before the door has closed; return whether the thread has ended."""
        self._thread.join(LAST_ENTRIES_S)
        return not self._thread.is_alive()

    def _write_all(self) -> None:
        while (taken := self._take()) is not None:
            try:
                given = json.loads(ctypes.string_at(taken.address))
                for each in given["entries"]:
                    self._write(each)
                if dropped := given["dropped"]:
                    log.warning("%d requests were not recorded: their lines or spans are written too slowly", dropped)
            except Exception as error:  # memory is exhausted; the next entries are written
                log_fault("what the native door has noted", error)
            finally:
                taken.release()

    def _write(self, given: Mapping[str, Any]) -> None:
        try:
            self._write_one(given)
        except Exception as error:  # of a handler, or of a processor of spans, of the program
            log_fault("what the native door has noted of a request", error)

    def _write_one(self, given: Mapping[str, Any]) -> None:
        """Write the line of one request, and its spans. Moments are those of time.monotonic_ns."""
        path, began, ended = given["path"], given["begun"], given["ended"]
        model = self._model(given["model"]) if given["model"] else None
        visits = hami.native.value_of(given["visits"]) if given["visits"] else None
        status: int | None = given["status"]
        if not path and status == access_log.CLIENT_LEFT:
            status = None
        if access_log.is_on() and status is not None:  # a client of gRPC that leaves has no line
            entry = access_log.Entry("HTTP", f"POST {short(path)}") if path else access_log.Entry("gRPC", "ModelInfer")
            entry.id, entry.started = given["id"], began / 1e9
            entry.model = short(path.split("/")[3]) if model is None else model.handle.component
            entry.version = "" if model is None else model.handle.version
            if visits is not None:
                entry.times.append([hami.observe.RequestTimes({access_log.VISITS: visits})])
            entry.write(status if path else self._code_name(status), ended / 1e9)
        if tracing.is_on():
            keys = {} if visits is None else {access_log.VISITS: visits}
            keys |= {"priority": given["priority"]} if given["priority"] else {}
            run = None if model is None or model.pipe is None else tracing.Run(model.pipe, keys, *_outcome(given))
            tracing.record(path, given["trace"], status, began, ended, run)


def _outcome(given: Mapping[str, Any]) -> tuple[BaseException | None, int, int]:
    """Return how the model of a request has run: its error, and from when to when."""
    if not given["ran_to"]:
        return asyncio.CancelledError(), given["ran_from"], given["ended"]
    error = hami.native.value_of(given["error"]).exception() if given["error"] else None
    return error, given["ran_from"], given["ran_to"]
