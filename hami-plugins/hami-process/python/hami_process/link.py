"""The parent's side of one child process: it starts the child, and exchanges messages with it."""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import pickle
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from hami_process import native
from hami_process.blocks import HEAD, Block, Budget, Held, Sender
from hami_process.child import Setup
from hami_process.codec import Decoder
from hami_process.errors import ChildDied, SharedMemoryFull, how_it_ended
from hami_process.exceptions import decode_error
from hami_process.monitor import monitor

SLICE = native.SECOND // 50  # how long a wait is at a time, between looks at what else has happened
MOST_UNTAKEN = 64  # descriptors on the socket, whose buffer has place for about 200 on an ordinary system
CLOSE_TIME = 0.8  # seconds for the backend's `close`, less than the grace period of a pipe


def _nothing() -> None: ...


class Link:
    """A child, from its start to its end.

    ```
    starting ──ready──> up ──close──> ended
        └───────────────┴── death ───────┘
    ```
    """

    def __init__(self, setup: Setup, environment: dict[str, str], memory_limit: int) -> None:
        self.label = setup.expression
        begins = marshal.dumps((sys.path, environment, pickle.dumps(tuple(setup))))
        begin, size = native.Control.SIZE, len(begins)
        descriptor = native.create_memory(begin + size)
        try:
            os.pwrite(descriptor, begins, begin)
            self.control = native.Control(descriptor)
            self._budget = Budget(memory_limit)
            self._blocks: dict[int, Block] = {}
            self._dropped: list[int] = []  # since the last batch
            this = weakref.proxy(self)  # a cycle would keep the memory of a dead child
            self.sender = Sender(lambda size, dropped: this._create_block(size, dropped))
            self.held = Held(memory_limit // 4)
            self.batch = 0  # the number of the last one that was sent
            self.unanswered = False  # whether the last one was left without its result
            self.range: tuple[Any, Any] = (1, None)
            self._buffer, self._take = self.control.to_parent.reader()
            self.on_death: Callable[[], None] = _nothing
            self._closing = False
            self.running = monitor().start(descriptor, begin, size)
            self.ended = self.running.ended
            self.running.on_end = self._on_end
            if self.ended.is_set():
                self.control.close()
        finally:
            os.close(descriptor)

    def wait_until_ready(self, timeout: float, is_wanted: Callable[[], bool]) -> list[str]:
        """Wait until the backend of the child is initialised; return its remarks.

        Raises:
            ChildDied: The child has ended, or was ended because it took too long.
            Exception: The exception of the backend's `init`.
        """
        limit = time.monotonic() + timeout
        while True:
            message = self.receive(SLICE)
            if message is None:
                if not is_wanted():
                    self.running.kill("it is not needed any more")
                elif time.monotonic() > limit:
                    self.running.kill(f"it was not ready after start_timeout, {timeout:g} s")
                continue
            kind, *content = message
            if kind == "failed":
                self.running.kill("it failed to start")
                raise decode_error(*content)
            if kind == "ready":
                self.range = (content[0], content[1])
                return list(content[2])

    def receive(self, timeout: int) -> tuple[Any, ...] | None:
        """Return the next message of the child, or None if there was none in time.

        Raises:
            ChildDied: The child has ended.
        """
        size = self._take(timeout)
        if size >= 0:
            self.decoder = Decoder(self._blocks.__getitem__, self.held, copies_parts=True)
            message: tuple[Any, ...] = self.decoder.message(self._buffer[:size])
            if message[0] != "need":
                return message
            self._create_for_child(*message[1:])
            return None
        if size == native.CLOSED:
            raise self.death()
        return None

    def send(self, message: bytes) -> bool:
        """Give the child a message; return whether it could take one."""
        outcome = native.INTERRUPTED
        while outcome == native.INTERRUPTED:
            outcome = self.control.to_child.put(message, SLICE)
        if outcome == native.CLOSED:
            raise self.death()
        return outcome == native.DONE

    @property
    def has_taken(self) -> bool:
        """Whether the child has taken the last message."""
        return not self.control.to_child.is_full

    def take_dropped(self) -> list[int]:
        dropped, self._dropped = self._dropped, []
        return dropped

    def death(self) -> ChildDied:
        self.ended.wait()
        returncode = self.running.process.returncode
        reason = self.running.killed_because
        how = f"was ended: {reason}" if reason else how_it_ended(returncode)
        return ChildDied(f"the process of {self.label} {how}", returncode)

    def close(self) -> None:
        """End the child: its backend is closed, in a limited time."""
        self._closing = True
        with contextlib.suppress(ChildDied):
            if self.send(marshal.dumps(("close", []))):
                self.ended.wait(CLOSE_TIME)
        if not self.ended.is_set():
            self.running.kill("its backend was not closed in time")
            self.ended.wait(1.0)

    def _on_end(self) -> None:
        self.control.close()
        on_death, self.on_death, self.running.on_end = self.on_death, _nothing, _nothing  # they refer to this object
        if not self._closing:
            on_death()

    # ---- shared memory ----

    def _create(self, size: int) -> tuple[Block, int]:
        number, descriptor = self._budget.add(size), -1
        try:
            descriptor = native.create_memory(size)
            block = self._blocks[number] = Block(number, native.Memory(descriptor, size))
        except SharedMemoryFull:
            if descriptor >= 0:
                os.close(descriptor)
            self._budget.remove([number])
            raise
        return block, descriptor

    def _forget(self, numbers: list[int]) -> None:
        self._budget.remove(numbers)
        for number in numbers:
            del self._blocks[number]

    def _create_block(self, size: int, dropped: list[int]) -> Block:
        self._forget(dropped)
        self._dropped += dropped
        try:
            block, descriptor = self._create(size)
        except SharedMemoryFull:
            self._free_idle()
            block, descriptor = self._create(size)
        self._share("block", block, descriptor)
        if block.number % MOST_UNTAKEN == 0:  # the child waits for a message, and takes blocks only with one
            while not self.send(marshal.dumps(("blocks", block.number, []))):
                pass
        return block

    def _create_for_child(self, size: int, dropped: list[int]) -> None:
        self._forget(dropped)
        try:
            block, descriptor = self._create(size)
        except SharedMemoryFull as error:
            idle = self.sender.idle()
            self.sender.forget(idle)
            self._forget(idle)
            answer = ("idle", idle, "") if idle else ("full", [], str(error))
            with contextlib.suppress(OSError):
                self.running.link.send(pickle.dumps(answer))
            return
        self._share("yours", block, descriptor)

    def _free_idle(self) -> None:
        """Give back the memory that neither side uses now. The child waits for a message, so that it fills no block."""
        idle = [number for number, block in self._blocks.items() if not block.busy.load()]
        self.sender.forget(idle)
        self._forget(idle)
        while not self.send(marshal.dumps(("forget", idle + self.take_dropped(), []))):
            pass
        while self.receive(SLICE) is None:
            pass

    def _share(self, kind: str, block: Block, descriptor: int) -> None:
        try:
            self._send_descriptor(pickle.dumps((kind, block.number, block.capacity + HEAD)), descriptor)
        finally:
            os.close(descriptor)

    def _send_descriptor(self, data: bytes, descriptor: int) -> None:
        try:
            socket.send_fds(self.running.link, [data], [descriptor])
        except TimeoutError:
            self.running.kill("it does not take messages")
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.EBADF, errno.ENOTCONN):
                raise  # otherwise it has ended, as the next wait will find


class Supervisor:
    """Keeps one child running: starts it again after it has died, later each time that it dies without an answer."""

    FIRST_DELAY, LONGEST_DELAY = 0.1, 10.0  # seconds

    def __init__(self, start: Callable[[], Link], on_event: Callable[[str, str], None], start_timeout: float) -> None:
        self._start_link, self._on_event, self._start_timeout = start, on_event, start_timeout
        self._changed = threading.Condition()
        self._link: Link | None = None
        self._problem: BaseException | None = None  # why the last start has failed
        self.failed_starts = 0
        self._closed = False
        self._failures = 0  # in a row
        self._next_start = 0.0
        self._pid = os.getpid()

    def start(self) -> tuple[Link, list[str]]:
        link = self._start_link()
        try:
            remarks = link.wait_until_ready(self._start_timeout, lambda: not self._closed)
            with self._changed:
                if self._closed:
                    raise ChildDied(f"the process of {link.label} started after its pipe was closed")
                self._link = link
                self._changed.notify_all()
        except BaseException:
            link.running.kill("it is not needed any more")
            raise
        link.on_death = lambda: self._on_death(link)
        if link.ended.is_set():
            link.on_death = _nothing
            self._on_death(link)
        return link, remarks

    def wait(self, seconds: float, failed_starts: int) -> Link | None:
        """Return the child, if there is one within this time.

        A request waits for one attempt to start a child. If it failed at once instead, an instance without a child
        would take all requests from those that have one.

        Raises:
            Exception: An attempt to start one has failed since there were `failed_starts`.
        """
        with self._changed:
            if self._living() is None and self.failed_starts == failed_starts:
                self._changed.wait(seconds)
            link = self._living()
            if link is None and self._problem is not None and self.failed_starts != failed_starts:
                raise self._problem
            return link

    def _living(self) -> Link | None:
        return None if self._link is None or self._link.ended.is_set() else self._link

    def answered(self) -> None:
        self._failures = 0

    def close(self) -> None:
        if os.getpid() != self._pid:  # a forked process; the child belongs to its parent
            return
        with self._changed:
            self._closed = True
            link, self._link = self._link, None  # its memory does not wait for the pipe to be forgotten
            self._changed.notify_all()
        if link is not None:
            link.close()

    def _on_death(self, link: Link) -> None:
        """Let another thread start the next child; this is the thread that sees all ends."""
        with self._changed:
            if self._link is not link or self._closed:
                return
            self._link = None
        self._on_event("deaths", str(link.death()))
        threading.Thread(target=self._restart, name="hami-process restart", daemon=True).start()

    def _restart(self) -> None:
        while not self._wait_for_turn():
            try:
                self.start()
            except BaseException as error:
                if self._closed:
                    return
                self._on_event("failed_starts", f"cannot be started again: {error}")
                with self._changed:
                    self._problem = error.with_traceback(None)  # whose frames have the child
                    self.failed_starts += 1
                    self._changed.notify_all()
            else:
                self._on_event("restarts", "")
                return

    def _wait_for_turn(self) -> bool:
        """Wait as long as the failures say; return whether the pipe is closed."""
        delay = min(self.FIRST_DELAY * 2 ** (self._failures - 1), self.LONGEST_DELAY) if self._failures else 0.0
        self._failures = min(self._failures + 1, 32)
        with self._changed:
            return self._changed.wait_for(lambda: self._closed, delay) or self._closed
