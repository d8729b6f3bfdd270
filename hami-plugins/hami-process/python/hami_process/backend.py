"""Process[X]: instances of X in processes of their own."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import time
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Annotated, Any, Literal

import hami

from hami_process import allowed, child, imports
from hami_process.codec import Encoder
from hami_process.errors import ChildDied
from hami_process.exceptions import decode_error
from hami_process.link import SLICE, Link, Supervisor
from hami_process.native import SECOND

MOST_CHILDREN = 5  # that may die before they have taken a batch
NOT_PASSED = frozenset(("deadline", "priority", "result", "timeout"))  # sent beside the keys, or not at all


class Process(hami.Backend):
    """Runs its item in a child process, which each instance has for itself.

    A child that crashes fails the requests that it runs with ChildDied, and is started again.
    """

    start_timeout: Annotated[hami.types.Duration, "how long a child may take until its backend is initialised"] = 60.0
    kill_after: Annotated[
        hami.types.Duration | None,
        "a child that still runs a batch that long after all its requests have ended is killed",
    ] = 5.0
    shared_memory: Annotated[hami.types.ByteSize, "most shared memory of one child"] = 2 << 30
    objects: Annotated[Literal["pickle", "refuse"], "what happens to values that have no compact form"] = "pickle"
    pass_keys: Annotated[list[str] | None, "the keys of a request that the child gets; None: all"] = None
    preload: Annotated[list[str] | None, "modules that the child imports first"] = None
    environment: Annotated[
        list[str] | None, "variables of the child, NAME=value; {instance} is the number of the instance"
    ] = None

    thread = "serialized"
    child_count = (1, 1)
    outlines_items = True

    def init(self, options: Any) -> None:
        if imports.is_running_program:
            raise hami.ConfigError(
                "a child process runs the program's module again and comes to a pipe with Process: begin the program "
                'under  if __name__ == "__main__":'
            )
        if not sys.executable or getattr(sys, "frozen", False):
            raise hami.ConfigError(
                "Process starts a Python interpreter, and this program has none: it is frozen, or Python is embedded "
                "in it; ship it as a bundle (hami bundle) or with pex, or leave Process out"
            )
        allowed.check_modules(self.preload or ())
        ((expression, keys, classes),) = self.outlines
        self._node = self.log.name.removeprefix(child.NODE_PREFIX)
        self._label = expression
        self._setup = child.Setup(
            parent=os.getpid(),
            node=self._node,
            instance=options.get("instance", 0),
            expression=expression,
            keys=keys,
            classes=[imports.refer_to(name, target) for name, target in classes.items() if target is not None],
            program=imports.program(),
            preload=self.preload or [],
            pickles=self.objects == "pickle",
            most_held=self.shared_memory // 4,
            log_levels={name: logging.getLogger(name or None).getEffectiveLevel() for name in ("", "hami")},
            argv=sys.argv,
        )
        self._environment = self._variables(self._setup.instance)
        self._supervisor = Supervisor(self._start, self._on_event, self.start_timeout)
        try:
            link, remarks = self._supervisor.start()
        except BaseException:
            self._supervisor.close()
            raise
        self._range = link.range
        for remark in remarks:
            self.remark(remark)

    @property
    def min(self) -> Any:
        return self._range[0]

    @property
    def max(self) -> Any:
        return self._range[1]

    def close(self) -> None:
        self._supervisor.close()

    def forward(self, batch: list[hami.Request]) -> None:
        died: tuple[str, int | None] = ("", None)
        for _ in range(MOST_CHILDREN):
            link = self._wait_for_child(batch)
            if link is None:
                return
            is_sent = False
            try:
                if link.unanswered:
                    self._finish(link, [])
                sent = self._send(link, batch)
                is_sent = True
                if sent:
                    self._finish(link, sent)
                    self._supervisor.answered()
                return
            except ChildDied as error:
                died = str(error), _returncode(error)  # the error itself would keep this frame, and the child's memory
            if is_sent and link.has_taken:
                break  # the batch may be the reason; one that the child has not seen goes to the next
        for item in batch:
            item.fail(ChildDied(f"{died[0]}; it ran a batch of {len(batch)}", died[1]))

    # ---- the child ----

    def _variables(self, instance: int) -> dict[str, str]:
        variables: dict[str, str] = {}
        for text in self.environment or ():
            name, equals, value = text.partition("=")
            if not equals or not name:
                raise hami.ConfigError(f"environment takes NAME=value, got {text!r}")
            allowed.check_variable(name)
            variables[name] = value.replace("{instance}", str(instance))
        trace = os.environ.get("HAMI_TRACE")
        if trace:  # each process writes a file of its own, which `hami trace` finds by its name
            ours = Path(trace.replace("%p", str(os.getpid())))
            variables.setdefault("HAMI_TRACE", str(ours.with_suffix(f".%p{ours.suffix}")))
        return variables

    def _start(self) -> Link:
        link = Link(self._setup, self._environment, self.shared_memory)
        link.running.on_counts = self._on_counts
        return link

    def _on_counts(self, counts: dict[str, int]) -> None:
        for name, by in counts.items():
            self.count(name, by)

    def _on_event(self, name: str, text: str) -> None:
        self.count(f"process_{name}")
        if text:
            self.log.warning("%s", text)

    def _wait_for_child(self, batch: list[hami.Request]) -> Link | None:
        """Return the child; None, with failed requests, if there is none in time."""
        limit = time.monotonic() + self.start_timeout + Supervisor.LONGEST_DELAY
        failed_starts = self._supervisor.failed_starts
        while True:
            try:
                link = self._supervisor.wait(SLICE / SECOND, failed_starts)
            except Exception as error:
                for item in batch:
                    item.fail(ChildDied(f"the process of {self._label} cannot be started: {error}"))
                return None
            if link is not None:
                return link
            if time.monotonic() > limit:
                for item in batch:
                    item.fail(ChildDied(f"the process of {self._label} did not start in time"))
                return None
            if all(item.cancelled for item in batch):
                return None

    # ---- a batch ----

    def _send(self, link: Link, batch: list[hami.Request]) -> list[hami.Request]:
        """Send the requests that can be sent, and return them; fail the others."""
        encoder = Encoder(link.sender, self._setup.pickles)
        requests, sent = [], []
        for item in batch:
            kept = len(link.sender.sent)
            try:
                encoded = encoder.request(self._items(item), f"a request to {self._label}")
            except hami.DataTypeError as error:
                for block in link.sender.sent[kept:]:
                    block.busy.store(0)
                del link.sender.sent[kept:]
                encoder.forget_shared()
                item.fail(error)
                continue
            except BaseException:
                link.sender.take_back()
                raise
            requests.append((encoded, item.deadline, item.priority, item.takes_parts))
            sent.append(item)
        if not sent:
            return []
        link.batch = link.batch % 0xFFFFFFFF + 1
        message = ("batch", link.batch, link.take_dropped(), requests)
        try:
            data = encoder.message(message, link.control.to_child.capacity)
        except BaseException:
            link.sender.take_back()
            raise
        link.unanswered = True
        while not link.send(data):
            pass  # the child takes it as soon as it has ended the last batch, or ends
        link.sender.sent.clear()
        return sent

    def _items(self, item: hami.Request) -> list[tuple[str, Any]]:
        if self.pass_keys is not None:
            return [(key, item[key]) for key in self.pass_keys if key in item]
        return [(key, value) for key, value in item.items() if key not in NOT_PASSED]

    def _finish(self, link: Link, sent: list[hami.Request]) -> None:
        """Wait for the results of the last batch, and set them."""
        kill_at: float | None = None  # once all requests have ended
        while True:
            message = link.receive(SLICE)
            if message is None:
                if kill_at is None and all(item.cancelled for item in sent):
                    link.control.cancelled.store(link.batch)
                    kill_at = math.inf if self.kill_after is None else time.monotonic() + self.kill_after
                elif kill_at is not None and time.monotonic() > kill_at:
                    link.running.kill(f"it still ran {self.kill_after:g} s after its requests had ended (kill_after)")
                    kill_at = math.inf
                continue
            kind, number, *content = message
            if number != link.batch:
                continue
            if kind == "part":
                self._emit(link, sent, *content)
                continue
            link.unanswered = False
            self._set_results(link, sent, *content)
            return

    def _emit(self, link: Link, sent: list[hami.Request], index: int, encoded: list[Any]) -> None:
        if index >= len(sent):  # of a batch whose requests have ended
            return
        try:
            part = link.decoder.request(encoded)["part"]
        except Exception as error:  # a class that only the child can import
            sent[index].fail(self._unreadable("a part", error))
            return
        with contextlib.suppress(CancelledError, hami.DeadlineExceeded):  # the request has ended; the child learns it
            sent[index].emit(part)

    def _set_results(self, link: Link, sent: list[hami.Request], whole: Any, outcomes: list[Any]) -> None:
        if whole is not None and sent:
            raise decode_error(whole)
        for item, outcome in zip(sent, outcomes, strict=False):
            if outcome is None:
                continue
            kind, content = outcome
            if kind == "error":
                item.fail(decode_error(content))
                continue
            try:
                item.update(link.decoder.request(content))
            except Exception as error:  # a class that only the child can import
                item.fail(self._unreadable("the answer", error))
        del link.decoder

    def _unreadable(self, what: str, error: Exception) -> hami.DataTypeError:
        return hami.DataTypeError(f"{what} of {self._label} cannot be read in this process: {error}")


def _returncode(error: ChildDied) -> int | None:
    return -error.signal if error.signal is not None else error.exit_code
