"""Shadow: a backend that answers with A, and compares a part of the answers with those of B."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import hami

from hami_tools.differences import Tolerance
from hami_tools.shadow.record import Answer, Record

MAX_TOGETHER = 64  # requests that B gets in one call
REPORT_EVERY = 100  # compared requests between two lines of the log
_NOT_COPIED = frozenset({"event", "parts", "deadline", "timeout", "result", "node_name"})

Pair = tuple[dict[str, Any], Answer]


class Shadow(hami.Backend):
    """Answer with A, and let the node B answer a part of the requests too: `Shadow(b=candidate)[A]`.

    B runs on another thread, and never delays or changes an answer of A. Requests beyond `budget` or `max_waiting` are
    not compared.
    The counters of the node are `compared`, `differ`, `b_failed`, `not_compared`, `a_us` and `b_us`.
    """

    child_count = (1, 1)
    thread = "concurrent"

    b: Annotated[str, "name of the node that answers too"]
    share: Annotated[float, "part of the requests that B answers, 0 to 1"] = 0.1
    budget: Annotated[float, "largest part of a core that comparing takes, 0 to 1"] = 0.02
    timeout: Annotated[hami.types.Duration, "time limit of B for each request"] = hami.types.Duration(10)
    max_waiting: Annotated[int, "most requests that wait for B"] = 64
    rtol: Annotated[float | None, "relative tolerance of numbers; default: by their type"] = None
    atol: Annotated[float | None, "absolute tolerance of numbers; default: a tenth of the relative one"] = None
    keep: Annotated[int, "requests that are kept: those that differ most"] = 10
    folder: Annotated[Path | None, "where they are kept; default: none is"] = None

    def init(self, options: Any) -> None:
        for name, most in (("share", 1.0), ("budget", 1.0)):
            if not 0 < getattr(self, name) <= most:
                raise hami.ConfigError(f'Shadow: "{name}" must be above 0 and at most 1, got {getattr(self, name)}')
        if self.max_waiting < 1 or self.keep < 0:
            raise hami.ConfigError(
                f'Shadow: "max_waiting" must be at least 1 and "keep" at least 0, '
                f"got {self.max_waiting} and {self.keep}"
            )
        self._a = self.children[0]
        self._b = self.find(f"node.{self.b}")
        self._record = Record(Tolerance(self.rtol, self.atol), self.keep, self.folder)
        self._owed = 0.0  # requests that B is to answer; a race of two threads loses a part of one
        self._waiting: queue.Queue[Pair | None] = queue.Queue(self.max_waiting)
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="hami-shadow", daemon=True).start()

    @property
    def min(self) -> Any:
        return self._a.min

    @property
    def max(self) -> Any:
        return self._a.max

    def forward(self, batch: list[Any]) -> None:
        self._owed += self.share * len(batch)
        if self._owed < 1:
            self._a.forward(batch)
            return
        chosen = batch[: int(self._owed)]
        self._owed -= len(chosen)
        copies = [{key: item[key] for key in item if key not in _NOT_COPIED} for item in chosen]
        start = time.perf_counter()
        try:
            self._a.forward(batch)
        except BaseException:
            self.count("a_failed", len(chosen))
            raise
        seconds = time.perf_counter() - start
        for item, copy in zip(chosen, copies, strict=True):
            if "result" not in item:  # A failed, or the request was skipped
                self.count("a_failed")
                continue
            try:
                self._waiting.put_nowait((copy, Answer(item["result"], seconds)))
            except queue.Full:
                self.count("not_compared")

    def close(self) -> None:
        self._closed.set()
        with contextlib.suppress(queue.Full):  # then the thread does not wait
            self._waiting.put_nowait(None)

    # ---- the thread of B

    def _run(self) -> None:
        while not self._closed.is_set() and (first := self._waiting.get()) is not None:
            pairs = [first]
            with contextlib.suppress(queue.Empty):
                while len(pairs) < MAX_TOGETHER and (pair := self._waiting.get_nowait()) is not None:
                    pairs.append(pair)
            start, used = time.perf_counter(), time.thread_time()
            try:
                self._compare(pairs)
            except hami.PipeClosed:
                return
            except Exception as error:  # of the folder, or an answer that cannot be compared: A goes on
                self.count("not_compared", len(pairs))
                self.log.warning("answers cannot be compared: %s", error)
            used = time.thread_time() - used
            self._closed.wait(used / self.budget - (time.perf_counter() - start))

    def _compare(self, pairs: list[Pair]) -> None:
        requests = [dict(request) for request, _ in pairs]
        errors: dict[int, BaseException] = {}
        start = time.perf_counter()
        try:
            self._b(requests, timeout=self.timeout)
        except hami.BatchError as error:
            errors = dict(error.errors)
        seconds = time.perf_counter() - start
        reported = self._record.counts["compared"] // REPORT_EVERY
        differ = 0
        for index, ((request, a), answered) in enumerate(zip(pairs, requests, strict=True)):
            b = Answer(errors.get(index, answered.get("result")), seconds)
            differ += self._record.add(request, a, b).differs
        self.count("differ", differ)
        self.count("b_failed", len(errors))
        self.count("a_us", int(sum(a.seconds for _, a in pairs) * 1e6))
        self.count("b_us", int(seconds * len(pairs) * 1e6))
        self.count("compared", len(pairs))  # last: a reader that sees it sees the others too
        if self._record.counts["compared"] // REPORT_EVERY > reported:
            self.log.info("compared with %s: %s", self.b, self._record.as_dict())
