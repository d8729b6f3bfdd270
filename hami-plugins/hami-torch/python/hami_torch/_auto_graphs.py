"""Capture CUDA graphs of a program in the background, for the batch sizes that a node runs."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from weakref import WeakSet

import hami

from hami_torch._device import as_current
from hami_torch._graphs import Graphs
from hami_torch._program import first_line
from hami_torch._tensor import tensors_of
from hami_torch._torch import torch

RUNS = 16  # of the model with one shape of rows, before its graphs are captured: then a node is in use
_TRIES = 3  # of a capture: a program that synchronizes the device meanwhile ends it
_MEMORY_SHARE = 16  # the graphs of all instances may take one part in so many of the memory of the device

_instances_lock = threading.Lock()  # guards each set of instances


def _reset_after_fork() -> None:
    """Replace the lock, which a thread of the parent may hold."""
    global _instances_lock
    _instances_lock = threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)


def ladder(rows: int) -> list[int]:
    """Return the sizes to capture up to `rows`, of which each batch is padded to the next: by a third at most, above 2.

    >>> ladder(20)
    [1, 2, 3, 4, 6, 8, 12, 16, 24]
    """
    sizes, step = [1], 1
    while sizes[-1] < rows:
        step *= 2
        sizes += [step, step * 3 // 2] if step * 3 // 2 > step else [step]
    return sizes[: next(index for index, size in enumerate(sizes) if size >= rows) + 1]


class Row(NamedTuple):
    """What the graphs take: the shape and dtype of a row."""

    shape: torch.Size
    dtype: torch.dtype


class AutoGraphs:
    """Counts the runs of a program without graphs, and makes its graphs on a thread of its own.

    The graphs of all instances are made at once: an instance that is used later has its own when it is tried.

    Args:
        capture: makes the graphs of these sizes for rows of a kind.
        ready: gets the graphs, on that thread. It replaces and closes earlier ones.
        remark: gets a sentence about what happened, for users.
        instances: those of all instances that run this program with the same settings; this one is added.
    """

    def __init__(
        self,
        device: torch.device,
        capture: Callable[[Sequence[int], Row], Graphs],
        check: Callable[[Graphs, torch.Tensor], str],
        ready: Callable[[Graphs, int], None],
        remark: Callable[[str], None],
        instances: WeakSet[AutoGraphs] | None = None,
    ) -> None:
        self._device, self._capture, self._check = device, capture, check
        self._ready, self._remark = ready, remark
        self._lock = threading.Lock()  # guards what follows
        self._row: Row | None = None
        self._seen: Counter[int] = Counter()  # runs that no graph has taken, by number of rows
        self._tries = 0
        self._thread: threading.Thread | None = None
        self._ended = False
        self._largest = 0  # size of the graphs that it has
        self._instances: WeakSet[AutoGraphs] = WeakSet() if instances is None else instances
        with _instances_lock:
            self._instances.add(self)

    def saw(self, data: torch.Tensor) -> None:
        """Note a run on data that no graph has taken, as it is converted for the program."""
        row, rows = Row(data.shape[1:], data.dtype), len(data)
        with self._lock:
            if self._ended or self._thread is not None:
                return
            if self._row is None:
                self._row = row
            if row != self._row:
                return
            self._seen[rows] += 1
            if sum(self._seen.values()) < RUNS << (2 * self._tries):
                return
            usual = max((rows for rows, count in self._seen.items() if count > 1), default=0)
            self._seen.clear()
            if not usual:
                return
            example = data.detach().clone()
            self._thread = threading.Thread(
                target=self._make, args=(ladder(usual), row, example), name="hami-graphs", daemon=True
            )
            self._thread.start()

    def _make(self, sizes: list[int], row: Row, example: torch.Tensor) -> None:
        taken = self._make_own(sizes, row, example, 0)
        if taken is None:
            return
        with _instances_lock:
            others = list(self._instances)
        for each in others:
            if each._begins(row, sizes[-1]):
                more = each._make_own(sizes, row, example, taken)
                if more is None and each._ended:  # there is no memory for more
                    return
                taken += more or 0

    def _begins(self, row: Row, largest: int) -> bool:
        """Whether this thread is to make graphs for an instance that has none, or smaller ones."""
        with self._lock:
            if self._ended or self._thread is not None or self._largest >= largest or self._row not in (None, row):
                return False
            self._row, self._thread = row, threading.current_thread()
            return True

    def _make_own(self, sizes: list[int], row: Row, example: torch.Tensor, already: int) -> int | None:
        """Return the bytes of the graphs, which the instance then has; None: it has none.

        `already` are the bytes of those of other instances.
        """
        reason, is_final, taken = "", False, 0
        try:
            with as_current(self._device), torch.no_grad():
                free, total = torch.cuda.mem_get_info(self._device)
                graphs = self._capture(sizes, row)
                taken = max(0, free - torch.cuda.mem_get_info(self._device)[0])
                reason = self._check(graphs, example)
                if not reason and already + taken > total // _MEMORY_SHARE:
                    size = f"{(already + taken) >> 20} MB" + (" with those of other instances" if already else "")
                    reason = f"its graphs take {size}, more than a part in {_MEMORY_SHARE} of the device"
                is_final = bool(reason)
                if reason:
                    graphs.close()
                else:
                    self._ready(graphs, taken)
        except Exception as error:  # a run that fails here fails in no request
            reason = first_line(error)
        with self._lock:
            self._thread = None
            self._tries = self._tries + 1 if reason else 0
            self._ended = self._ended or is_final or self._tries >= _TRIES
            if not reason:
                self._largest = sizes[-1]
                self._seen.clear()
            elif self._ended:
                with suppress(hami.PipeClosed):
                    self._remark(f"TorchModel runs without CUDA graphs: {reason}; graphs = false stops the attempt")
        return None if reason else taken

    def close(self) -> None:
        """End: a capture in progress is waited for, and its graphs are handed over before this returns."""
        with self._lock:
            self._ended, thread = True, self._thread
        if thread is not None:
            thread.join()


def difference(graphs: Graphs, call: Callable[..., Any], example: torch.Tensor, tolerance: float) -> str:
    """Return why these graphs may not stand for the program; empty if they compute what it does on an example."""
    if graphs.uses_random_numbers():
        return "the model uses random numbers"
    rows = min(len(example), graphs.sizes[-1])
    if not graphs.pads and rows not in graphs.captured:
        return "an output does not have one row for each input row"
    data = example[:rows]
    wanted = tensors_of(call(data))
    given = tensors_of(graphs.run([data], rows))
    for mine, own in zip(given, wanted, strict=True):
        scale = max(1e-6, own.abs().max().item()) if own.numel() else 1.0
        if own.numel() and not (mine.double() - own.double()).abs().max().item() <= tolerance * scale:
            return "captured as graphs, the model gives other results"
    return ""


def allowed(graphs: Sequence[Any]) -> bool | list[Any]:
    """Return what the key `graphs` says: True (the default), False, or the sizes."""
    words = [str(value).lower() for value in graphs]
    if words == ["auto"]:
        return True
    if words in ([], ["false"], ["off"]):
        return False
    if words == ["true"]:
        raise hami.ConfigError('TorchModel: "graphs" must be a list of batch sizes, auto or false, got true')
    return list(graphs)
