"""Reloads the models of a folder when its files change."""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import Future, wait
from pathlib import Path

from hami.config import model_file

from hami_serve.errors import text_of
from hami_serve.serving import Serving

INTERVAL_S = 1.0
log = logging.getLogger("hami.serve")

Signature = dict[str, tuple[int, ...]]  # path -> what changes with each change of the file


class Watcher:
    """Compares the TOML files of a folder with those of the last look, and applies what has changed.

    Each component is all or nothing: one that cannot be built keeps running as it was, and the others change. One that
    hangs while it is built delays only its own next change.
    """

    def __init__(self, serving: Serving, folder: Path) -> None:
        self._serving = serving
        self._folder = folder
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hami-serve-watch", daemon=True)
        self._seen: Signature | None = signature(folder)
        self._lock = threading.Lock()  # guards _seen and _running: `look` may be called beside the thread
        self._running: dict[str, Future[None]] = {}

    def __enter__(self) -> Watcher:
        """Look at the folder from time to time, on a thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self._begin()
            self._report()

    def look(self) -> bool:
        """Apply the changes since the last look, and wait for them; return whether there were any."""
        changed = self._begin()
        with self._lock:
            running = list(self._running.values())
        wait(running)
        self._report()
        return changed

    def _begin(self) -> bool:
        """Begin to apply the changes since the last look; return whether there were any."""
        if not self._serving.loaded:
            return False
        now = signature(self._folder)
        with self._lock:
            if now == self._seen:
                return False
            # Files that change while models load are found by the next look, and so are those of components that
            # still change.
            self._seen = now if not self._running else None
            try:
                self._running.update(self._serving.reload(self._running))
            except Exception as error:
                log.error("the folder %s is not reloaded: %s", self._folder, text_of(error))
            return True

    def _report(self) -> None:
        """Log why changes that have ended have failed."""
        with self._lock:
            ended = {name: change for name, change in self._running.items() if change.done()}
            for name in ended:
                del self._running[name]
        for name, change in ended.items():
            if (error := change.exception()) is not None:
                log.error("%s is not reloaded: %s", name, text_of(error))


def signature(folder: Path) -> Signature:
    """Return the state of all TOML and model files of a folder and its folders.

    Links are followed, as those of a ConfigMap.
    """
    found: Signature = {}
    walked: set[tuple[int, int]] = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        if (status := _status(parent)) is None or (status.st_dev, status.st_ino) in walked:
            folders.clear()  # a link to a folder that contains it
            continue
        walked.add((status.st_dev, status.st_ino))
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = os.path.join(parent, name)
            if (name.endswith(".toml") or model_file(name)) and (status := _status(path)) is not None:
                # The times of a file can be set, except that of the last change of its metadata.
                found[path] = (status.st_dev, status.st_ino, status.st_ctime_ns, status.st_mtime_ns, status.st_size)
    return found


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:  # removed in the meantime
        return None
