"""Shadow: a backend that answers with A, and compares a part of the answers with those of B."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import hami

from hami_tools.differences import Tolerance
from hami_tools.shadow.record import Answer, Record
from hami_tools.shadow.snapshot import snapshot

MAX_TOGETHER = 64  # requests that B gets in one call
CREDIT = 1.0  # seconds of budget that copies may use in advance
REPORT_EVERY = 100  # compared requests between two lines of the log
_NOT_PASSED = frozenset({"event", "parts", "deadline", "timeout", "result", "node_name"})

Pair = tuple[dict[str, Any], Answer]


class Shadow(hami.Backend):
    """Answer with A, and let the node B answer a part of the requests too: `Shadow(b=candidate)[A]`.

    B runs on another thread with copies of the arrays, and never delays or changes an answer of A. Requests beyond
    `budget` or `max_waiting` are neither copied nor compared.
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
        self._paid_at = 0.0  # when the budget has paid for what was done; a race loses a part of it, too
        self._waiting: queue.Queue[Pair | None] = queue.Queue(self.max_waiting)
        self._problem_level = logging.WARNING  # of the first; requests may come at any rate
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
        copies = self._copies(chosen)
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
            elif copy is None or not self._enqueue(copy, item["result"], seconds):
                self.count("not_compared")

    def _copies(self, items: list[Any]) -> list[dict[str, Any] | None]:
        """Copy the requests that B will have time for; None in place of the others."""
        is_paid = self._paid_at < time.monotonic() + CREDIT
        room = self._waiting.maxsize - self._waiting.qsize() if is_paid else 0
        kept = [{key: item[key] for key in item if key not in _NOT_PASSED} for item in items[:room]]
        return [self._copy(keys) for keys in kept] + [None] * (len(items) - len(kept))

    def _enqueue(self, request: dict[str, Any], result: Any, seconds: float) -> bool:
        """Let B answer a request; False: its queue is full, or the answer of A cannot be copied."""
        answer = self._copy({"result": result})
        if answer is None:
            return False
        try:
            self._waiting.put_nowait((request, Answer(answer["result"], seconds)))
        except queue.Full:
            return False
        return True

    def _copy(self, keys: dict[str, Any]) -> dict[str, Any] | None:
        """Copy values, as part of the budget; None if they cannot be copied."""
        start = time.thread_time()
        try:
            copy: dict[str, Any] = snapshot(keys)
        except Exception as error:  # too little memory, a list that contains itself: A goes on
            self.log.debug("a request is not compared, it cannot be copied: %s", error)
            return None
        finally:
            self._pay(time.thread_time() - start)
        return copy

    def _pay(self, seconds: float) -> None:
        """Use seconds of a core from the budget."""
        self._paid_at = max(self._paid_at, time.monotonic()) + seconds / self.budget

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
            start = time.thread_time()
            try:
                self._compare(pairs)
            except hami.PipeClosed:
                return
            except Exception as error:  # of the folder, or an answer that cannot be compared: A goes on
                self.count("not_compared", len(pairs))
                level, self._problem_level = self._problem_level, logging.DEBUG
                self.log.log(level, "answers cannot be compared: %s", error)
            self._pay(time.thread_time() - start)
            self._closed.wait(self._paid_at - time.monotonic())

    def _compare(self, pairs: list[Pair]) -> None:
        own = snapshot if self._record.keeps else dict  # what is kept is not what B makes of it
        requests = [own(request) for request, _ in pairs]
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
