"""RowWatch: runs one row of a few batches again alone, and ends the joining of requests after a difference."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hami_model_check.row_test import Difference, largest_difference, tolerance

EVERY = 256  # joined batches; one of them costs one more row, which is below 1 % of the work even for batches of two

log = logging.getLogger("hami.rows")

_lock = threading.Lock()
_watches: weakref.WeakKeyDictionary[Any, RowWatch] = weakref.WeakKeyDictionary()


def _reset_after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)


def shared_watch(
    opened: object, backend: str, model: str, *, nodes: int, computed_in: str = "", stops: bool = True
) -> RowWatch:
    """Return the watch of an opened model: all nodes of a process that share it learn from each other.

    Args:
        opened: what the nodes share, such as a session; its watch is freed with it.
        backend, model, nodes, computed_in: as for `RowWatch`.
        stops: False: a watch of its own, because the user has asked this node for joining.
    """
    if not stops:
        return RowWatch(backend, model, nodes=nodes, computed_in=computed_in, stops=False)
    with _lock:
        watch = _watches.get(opened)
        if watch is None:
            watch = _watches[opened] = RowWatch(backend, model, nodes=nodes, computed_in=computed_in)
    return watch


class RowWatch:
    """Watches the joined batches of one model; any number of threads may use it.

        watch = RowWatch("OnnxTensor", "detector.onnx", nodes=120)
        if watch.joins and watch.is_due():
            watch.compare(["y"], rows_of_the_batch, run_alone, size=8)

    After the first difference beyond the tolerance, `joins` is False and `difference` says what was seen.

    Args:
        backend, model: for the message.
        nodes, computed_in: number of nodes of the model, and the type that it computes in, as in `tolerance`.
        every: one in so many joined batches is due.
        stops: whether a difference ends the joining; False: it is only logged, because the user has asked for joining.
    """

    def __init__(
        self,
        backend: str,
        model: str,
        *,
        nodes: int,
        computed_in: str = "",
        every: int = EVERY,
        stops: bool = True,
    ) -> None:
        self.joins = True
        self.difference: Difference | None = None
        self.largest = 0.0  # relative, of all rows that were compared
        self._backend, self._model = backend, model
        self._nodes, self._computed_in = nodes, computed_in
        self._every, self._stops = every, stops
        self._batches = itertools.count(1)  # `next` is atomic
        self._owed = False
        self._stopped: list[weakref.WeakMethod[Callable[[], None]]] = []
        self._reports = itertools.count()

    @property
    def finding(self) -> str:
        """A sentence about the difference; empty if none was seen."""
        if self.difference is None:
            return ""
        what = (
            "requests run one by one from now on; set batched = false"
            if self._stops
            else "requests are still joined, because batched = true"
        )
        return f"rows of {self._model} depend on their neighbours: {self.difference}; {what}"

    def is_due(self) -> bool:
        """Count a joined batch, and return whether one of its rows should run again alone."""
        owed, self._owed = self._owed, False
        return next(self._batches) % self._every == 0 or owed

    def skip(self, batches: int) -> None:
        """Count joined batches that ran without this watch; if one of them was due, the next one is."""
        numbers = [next(self._batches) for _ in range(batches)]  # all, also behind one that is due
        self._owed = self._owed or any(number % self._every == 0 for number in numbers)

    def when_stopped(self, call: Callable[[], None]) -> None:
        """Call a method of an object, which the watch does not keep, when a difference ends the joining."""
        self._stopped.append(weakref.WeakMethod(call))

    def compare(
        self,
        outputs: Sequence[str],
        together: Sequence[NDArray[Any]],
        run_alone: Callable[[], Sequence[Any]],
        *,
        rows: int,
    ) -> bool:
        """Run a row alone and compare it with what it got in its batch. Return whether they are equal.

        Args:
            outputs: names of the outputs.
            together: what the row got.
            run_alone: runs the row alone and returns the same; an error counts as equal, because it says nothing.
            rows: number of rows of the batch.
        """
        try:
            alone = [np.asarray(output) for output in run_alone()]
        except Exception:  # the batch has run: this is not a finding about its rows
            log.debug("%s: a row of %s could not run alone", self._backend, self._model, exc_info=True)
            return True
        for name, own, joined in zip(outputs, alone, together, strict=True):
            difference = largest_difference(own, np.asarray(joined), name, rows)
            self.largest = max(self.largest, difference.relative)
            if difference.relative > tolerance(own.dtype, self._nodes, self._computed_in):
                self._stop(difference)
                return False
        return True

    def _stop(self, difference: Difference) -> None:
        if self._stops:
            self.joins = False
            for each in tuple(self._stopped):
                if (call := each()) is not None:
                    call()
        if next(self._reports):
            return  # another thread, or an earlier batch, has reported
        self.difference = difference
        log.warning("%s: %s", self._backend, self.finding)
