"""The journal of the native door: its threads note each request that they answer, and one thread here writes the log.

Neither reading nor writing delays a request. Entries that come faster than this thread writes are dropped, and counted.
"""

from __future__ import annotations

import ctypes
import json
import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

import hami

from hami_serve import access_log
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
                    self._write(**each)
                if given["dropped"]:
                    log.warning(
                        "%d requests have no line in the access log: it is written too slowly", given["dropped"]
                    )
            except Exception as error:  # of a handler of the program; the next entries are written
                log_fault("the access log of the native door", error)
            finally:
                taken.release()

    def _write(self, path: str, id: str, model: int, visits: int, begun: int, ended: int, status: int) -> None:
        """Write the line of one request. Moments are those of time.monotonic_ns."""
        entry = access_log.Entry("HTTP", f"POST {short(path)}") if path else access_log.Entry("gRPC", "ModelInfer")
        entry.id, entry.started = id, begun / 1e9
        if model:
            handle = self._model(model).handle
            entry.model, entry.version = handle.component, handle.version
        else:
            entry.model = short(path.split("/")[3])  # of /v2/models/NAME/infer
        if visits:
            entry.times.append(hami.observe.RequestTimes({access_log.VISITS: hami.native.value_of(visits)}))
        entry.write(status if path else self._code_name(status), ended / 1e9)
