"""Reloads the models of a folder when its files change."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

from hami_serve.errors import text_of
from hami_serve.serving import Serving

INTERVAL_S = 1.0
log = logging.getLogger("hami.serve")

Signature = dict[str, tuple[int, int]]  # path -> time of the last change, size


class Watcher:
    """Compares the TOML files of a folder with those of the last look, and applies what has changed.

    Each component is all or nothing: one that cannot be built keeps running as it was, and the others change.
    """

    def __init__(self, serving: Serving, folder: Path) -> None:
        self._serving = serving
        self._folder = folder
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hami-serve-watch", daemon=True)
        self._seen = signature(folder)

    def __enter__(self) -> Watcher:
        """Look at the folder from time to time, on a thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self.look()

    def look(self) -> bool:
        """Apply the changes since the last look; return whether there were any."""
        now = signature(self._folder)
        if now == self._seen:
            return False
        self._seen = now  # files that change while models load are found by the next look
        try:
            for name, error in self._serving.reload().items():
                log.error("%s is not reloaded: %s", name, text_of(error))
        except Exception as error:
            log.error("the folder %s is not reloaded: %s", self._folder, text_of(error))
        return True


def signature(folder: Path) -> Signature:
    """Return the state of all TOML files of a folder and its folders."""
    found: Signature = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".toml"):
                path = os.path.join(parent, name)
                try:
                    status = os.stat(path)
                except OSError:  # removed in the meantime
                    continue
                found[path] = (status.st_mtime_ns, status.st_size)
    return found
