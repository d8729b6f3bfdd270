"""Record: counts how the answers of two pipelines differ, and keeps the requests with the largest differences."""

from __future__ import annotations

import heapq
import logging
import shutil
import threading
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hami.cli import describe_exception, json_of, short

from hami_tools.differences import Difference, Tolerance, compare

_log = logging.getLogger("hami.shadow")

MAX_TEXT = 400  # characters of a value in a description
MAX_TIMES = 10_000  # of which percentiles are computed: the last ones


class Answer(NamedTuple):
    """What a pipeline answered: a result or an exception, and the time it took, in seconds."""

    result: Any
    seconds: float

    @property
    def failed(self) -> bool:
        return isinstance(self.result, BaseException)


class Record:
    """Compares answers of A and B. Its methods may be called from any thread.

    Args:
        tolerance: What numbers may differ by.
        keep: How many requests are kept: those whose answers differ most.
        folder: Where they are kept, each in a folder of its own; None: none is.
    """

    def __init__(self, tolerance: Tolerance, keep: int, folder: Path | None) -> None:
        self._tolerance = tolerance
        self._keep = keep if folder else 0
        self._folder = folder
        self._lock = threading.Lock()
        self._worst: list[tuple[float, int]] = []  # a heap of excess and the number of the folder
        self.counts: Counter[str] = Counter()
        self.largest = 0.0
        self._ms: dict[str, deque[float]] = {"a": deque(maxlen=MAX_TIMES), "b": deque(maxlen=MAX_TIMES)}

    @property
    def keeps(self) -> bool:
        """Whether requests are kept."""
        return self._keep > 0

    def add(self, request: Mapping[str, Any], a: Answer, b: Answer, label: str = "") -> Difference:
        """Compare the answers to one request, and keep it if it is among the worst."""
        difference = compare(a.result, b.result, self._tolerance)
        with self._lock:
            self.counts["compared"] += 1
            self.counts["differ"] += difference.differs
            self.counts["a_failed"] += a.failed
            self.counts["b_failed"] += b.failed
            self.largest = max(self.largest, difference.largest)
            for name, answer in (("a", a), ("b", b)):
                self._ms[name].append(answer.seconds * 1e3)
            if difference.differs and self._keep:
                self._try_to_keep(request, a, b, difference, label)
        return difference

    def _try_to_keep(self, request: Mapping[str, Any], a: Answer, b: Answer, found: Difference, label: str) -> None:
        try:
            self._keep_one(request, a, b, found, label)
        except (OSError, ValueError) as error:  # a full disk, or a value without a text: the figures go on
            self.counts["not_kept"] += 1
            if self.counts["not_kept"] == 1:
                _log.warning("a request that differs cannot be kept in %s: %s", self._folder, error)

    def _keep_one(self, request: Mapping[str, Any], a: Answer, b: Answer, difference: Difference, label: str) -> None:
        excess = float("inf") if difference.reason else difference.excess
        if len(self._worst) < self._keep:
            slot = len(self._worst)
            heapq.heappush(self._worst, (excess, slot))
        elif excess > self._worst[0][0]:
            slot = heapq.heapreplace(self._worst, (excess, self._worst[0][1]))[1]
        else:
            return
        assert self._folder is not None
        folder = self._folder / f"difference-{slot + 1}"  # of an earlier run; a name that nothing else has
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        facts = {
            "input": label,
            "largest_difference": difference.largest,
            "times_the_tolerance": difference.excess,
            "reason": difference.reason,
            "a": _shown(a),
            "b": _shown(b),
            "keys": {key: short(value)[:MAX_TEXT] for key, value in request.items()},
        }
        (folder / "difference.json").write_text(json_of(facts, indent=1) + "\n", "utf-8")
        for name, value in (("data", request.get("data")), ("a", a.result), ("b", b.result)):
            _write(folder / name, value)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as a dict, for JSON."""
        with self._lock:
            return {
                **{name: self.counts[name] for name in ("compared", "differ", "a_failed", "b_failed", "not_kept")},
                "largest_difference": self.largest,
                "ms": {name: _percentiles(sorted(ms)) for name, ms in self._ms.items()},
            }


def _percentiles(ms: list[float]) -> dict[str, float]:
    return {f"p{part}": ms[min(len(ms) * part // 100, len(ms) - 1)] for part in (50, 90, 99)} if ms else {}


def _shown(answer: Answer) -> dict[str, Any]:
    text = describe_exception(answer.result) if answer.failed else short(answer.result)
    return {"answer": text[:MAX_TEXT], "ms": answer.seconds * 1e3}


def _write(file: Path, value: Any) -> None:
    """Write a value beside its description, if it has a form that tools read: bytes, text or an array."""
    if isinstance(value, bytes):
        file.with_suffix(".bin").write_bytes(value)
    elif isinstance(value, str):
        file.with_suffix(".txt").write_text(value, "utf-8", "surrogatepass")
    elif hasattr(value, "tolist"):
        try:
            import hami
            import numpy

            numpy.save(file.with_suffix(".npy"), hami.to_numpy(value), allow_pickle=False)
        except Exception:  # numpy is missing, or has no such type: the description is left
            return
