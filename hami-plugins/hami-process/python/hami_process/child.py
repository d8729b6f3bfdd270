"""The child process: it builds the backend, and runs the batches that the parent sends.

| thread | does |
|---|---|
| main | takes a batch, runs it in a pipe, sends the results |
| of the pipe | `init`, `forward` and `close` of the backend |
| watcher | cancels the batch that runs when the parent says so; sends counters |
| one for each streamed request | sends the parts of its result |
"""

from __future__ import annotations

import array
import contextlib
import logging
import marshal
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from typing import Any, ClassVar, NamedTuple, NoReturn

import hami

from hami_process import imports, native
from hami_process.blocks import Block, Held, Sender
from hami_process.codec import Decoder, Encoder
from hami_process.errors import SharedMemoryFull
from hami_process.exceptions import encode_error
from hami_process.monitor import LARGEST

NODE_PREFIX = "hami.node."
COUNT_PERIOD = native.SECOND // 5
CANCEL_SIGNAL = signal.SIGRTMAX - 3
LONGEST_LOG = LARGEST // 5  # characters of one message, of up to four bytes each


class Setup(NamedTuple):
    """What the parent says to a child that begins."""

    parent: int
    node: str
    instance: int
    expression: str
    keys: dict[str, Any]
    classes: list[imports.ClassRef]
    program: imports.Program
    preload: list[str]
    pickles: bool
    most_held: int  # bytes
    log_levels: dict[str, int]  # by name of the logger
    argv: list[str]


class _Cancelled(BaseException):
    """Every request of the batch that runs has ended in the parent."""


class ProcessInstance(hami.Backend):
    """Gives the backends of the child the number of the instance in the parent."""

    number: int

    def init(self, options: Any) -> None:
        options["instance"] = self.number

    def forward(self, batch: list[hami.Request]) -> None:
        raise NotImplementedError


class ProcessRunner(hami.Backend):
    """Runs the backend, and knows whether it is running."""

    child_count = (1, 1)
    idle: ClassVar[threading.Event] = threading.Event()  # fork: the backend's own children run no batches
    range: ClassVar[tuple[Any, Any]] = (1, None)

    def init(self, options: Any) -> None:
        (inner,) = self.children
        ProcessRunner.range = (inner.min, inner.max)
        self._inner = inner

    @property
    def max(self) -> int:
        return 1 << 30  # the parent forms the batches

    def forward(self, batch: list[hami.Request]) -> None:
        self.idle.clear()
        try:
            self._inner.forward(batch)
        finally:
            self.idle.set()


class LogToParent(logging.Handler):
    """Sends records to the parent, where the loggers of the same names handle them."""

    def __init__(self, send: Any) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
            if record.exc_info:
                text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
            kept = ("name", "levelno", "levelname", "pathname", "filename", "lineno", "funcName", "created", "process")
            self._send("log", {**{name: record.__dict__[name] for name in kept}, "msg": text[:LONGEST_LOG]})
        except Exception:
            self.handleError(record)


class Child:
    def __init__(self, link: socket.socket, memory: int, setup: bytes) -> None:
        self._link = link
        self._setup = Setup(*pickle.loads(setup))
        self._control = native.Control(memory)
        os.close(memory)
        if not native.functions().end_with_parent(self._setup.parent, link.fileno()):
            os._exit(0)
        self._blocks: dict[int, Block] = {}
        self._given_up: set[int] = set()  # blocks that are still on the socket
        self._sender = Sender(self._create_block)
        self._sending = threading.Lock()  # of messages to the parent
        self._held = Held(self._setup.most_held)
        self._call_now: tuple[int, list[hami.Queue]] | None = None  # number of the batch that runs, and its parts
        self._pipe: hami.Pipe | None = None
        self._counted: dict[str, int] = {}

    # ---- messages ----

    def _receive(self) -> tuple[Any, list[int]]:
        data, ancillary, _, _ = self._link.recvmsg(1 << 20, socket.CMSG_LEN(4))
        if not data:
            os._exit(0)
        descriptors = array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
        return pickle.loads(data), list(descriptors)

    def _tell(self, kind: str, content: Any) -> None:
        with contextlib.suppress(OSError):
            self._link.send(marshal.dumps((kind, content)))

    def _receive_block(self) -> tuple[str, int]:
        """Receive memory, or why there is none. One thread at a time receives."""
        (kind, number, size), descriptors = self._receive()
        if kind == "full":
            raise SharedMemoryFull(size)
        if kind == "idle":
            self._forget(number)
            return kind, 0
        if not descriptors:  # the kernel drops one for which the process has no number
            self._give_up("it has no file descriptor left; its backend may leave files open")
        try:
            if number in self._given_up:
                self._given_up.remove(number)
            else:
                self._blocks[number] = Block(number, native.Memory(descriptors[0], size))
        except SharedMemoryFull as error:
            self._give_up(str(error))
        finally:
            os.close(descriptors[0])
        return kind, number

    def _give_up(self, reason: str) -> NoReturn:
        """End this process: it has lost a block that the parent counts on."""
        logging.getLogger("hami.process").error("the process of %s ends: %s", self._setup.expression, reason)
        os._exit(os.EX_OSERR)

    def _find_block(self, number: int) -> Block:
        while number not in self._blocks:
            self._receive_block()
        return self._blocks[number]

    def _forget(self, numbers: list[int]) -> None:
        self._sender.forget(numbers)
        for number in numbers:
            if self._blocks.pop(number, None) is None:
                self._given_up.add(number)

    def _create_block(self, size: int, dropped: list[int]) -> Block:
        self._forget(dropped)
        kind, number = "idle", 0
        while kind != "yours":
            if kind == "idle":  # first, and again after the parent has given back what it does not use
                self._put(marshal.dumps(("need", size, dropped, [])))
                dropped = []
            kind, number = self._receive_block()
        return self._blocks[number]

    def _put(self, message: bytes) -> None:
        outcome = native.TIMEOUT
        while outcome in (native.TIMEOUT, native.INTERRUPTED):
            outcome = self._control.to_parent.put(message, 60 * native.SECOND)
        if outcome == native.CLOSED:
            os._exit(0)

    def _send(self, *message: Any) -> None:
        with self._sending:
            encoder = Encoder(self._sender, self._setup.pickles)
            self._put(encoder.message(message, self._control.to_parent.capacity))
            self._sender.sent.clear()

    # ---- life ----

    def run(self) -> None:
        threading.current_thread().name = "hami-process"
        logging.getLogger().addHandler(LogToParent(self._tell))
        for name, level in self._setup.log_levels.items():
            logging.getLogger(name or None).setLevel(level)
        try:
            pipe = self._build()
        except BaseException as error:
            self._send("failed", encode_error(error))
            return
        self._pipe = pipe
        signal.signal(CANCEL_SIGNAL, self._on_cancel_signal)
        threading.Thread(target=self._watch, name="hami-process watcher", daemon=True).start()
        least, most = ProcessRunner.range
        self._send("ready", least, most, [str(remark) for remark in pipe.remarks()])
        buffer, take = self._control.to_child.reader()
        while True:
            size = take(60 * native.SECOND)
            if size == native.CLOSED:
                break
            if size < 0:
                continue
            decoder = Decoder(self._find_block, self._held, copies_parts=False)
            message = decoder.message(buffer[:size])
            if message[0] == "close":
                break
            if message[0] == "blocks":
                self._find_block(message[1])
            elif message[0] == "forget":
                self._forget(message[1])
                self._send("forgotten")
            else:
                self._run_batch(decoder, *message[1:])
            del decoder, message
        pipe.close()
        self._send_counters()

    def _build(self) -> hami.Pipe:
        setup = self._setup
        sys.argv = setup.argv
        for module in setup.preload:
            __import__(module)
        imports.register(setup.classes, setup.program)
        hami.register(ProcessInstance)
        hami.register(ProcessRunner)
        ProcessRunner.idle.set()
        expression = f"IoC[ProcessInstance({setup.instance});ProcessRunner[{setup.expression}]]"
        keys = {"batching": "off", "on_batch_error": "fail", "max_queue_size": 1 << 20}
        given = {name: _literal(value) for name, value in {**setup.keys, "backend": expression}.items()}
        return hami.pipe({setup.node: {**given, **keys}})

    # ---- batches ----

    def _run_batch(self, decoder: Decoder, number: int, dropped: list[int], sent: list[Any]) -> None:
        self._forget(dropped)
        outcomes: list[Any] = [None] * len(sent)
        requests: dict[int, dict[str, Any]] = {}
        originals: dict[int, dict[str, Any]] = {}
        threads: list[threading.Thread] = []
        queues: list[hami.Queue] = []
        unsent: dict[int, BaseException] = {}  # parts that could not be sent
        for index, (encoded, deadline, priority, takes_parts) in enumerate(sent):
            try:
                request = decoder.request(encoded)
            except Exception as error:
                outcomes[index] = ("error", encode_error(error))
                continue
            if deadline is not None:
                request["deadline"] = deadline
            if priority:
                request["priority"] = priority
            if takes_parts:
                parts = request["parts"] = hami.Queue(1)
                queues.append(parts)
                arguments = (number, index, parts, unsent)
                threads.append(threading.Thread(target=self._send_parts, args=arguments))
                threads[-1].start()
            requests[index], originals[index] = request, dict(request)
        errors, is_whole = self._call(number, requests, queues)
        for queue in queues:
            queue.close()
        for thread in threads:
            thread.join()
        with self._sending:
            encoder = Encoder(self._sender, self._setup.pickles)
            for index, request in requests.items():
                outcomes[index] = self._outcome(
                    encoder, request, originals[index], unsent[index] if index in unsent else errors.get(index)
                )
            encoded_error = encode_error(next(iter(errors.values()))) if is_whole else None
            # Frames of their tracebacks refer to these: a cycle would keep the arrays of a failed batch busy.
            errors.clear()
            unsent.clear()
            requests.clear()
            originals.clear()
            try:
                message = encoder.message(("result", number, encoded_error, outcomes), self._control.to_parent.capacity)
            except (SharedMemoryFull, ValueError) as error:  # the answers are too large, or nested too deep
                self._sender.take_back()
                message = marshal.dumps(("result", number, encode_error(error), [], []))
            self._put(message)
            self._sender.sent.clear()
        del encoder

    def _call(
        self, number: int, requests: dict[int, dict[str, Any]], queues: list[hami.Queue]
    ) -> tuple[dict[int, BaseException], bool]:
        """Run requests. Return their errors, and whether they are one error of the whole batch."""
        pipe = self._pipe
        assert pipe is not None
        order = list(requests)
        errors: dict[int, BaseException] = {}
        try:
            try:
                self._call_now = number, queues
                if self._control.cancelled.load() == number:
                    raise _Cancelled
                if len(order) == 1:
                    pipe(requests[order[0]])
                elif order:
                    pipe(list(requests.values()))
            finally:
                self._call_now = None
        except _Cancelled:
            errors = {index: hami.RequestError("the request was cancelled") for index in order}
        except hami.BatchError as error:
            errors = {order[position]: each for position, each in error.errors}
        except Exception as error:
            errors = dict.fromkeys(order, error)
        if errors:
            ProcessRunner.idle.wait()  # the backend may still run requests that have ended
        kinds = {id(error): type(error) for error in errors.values()}
        return errors, len(errors) == len(order) > 1 == len(kinds) and hami.NoResult not in kinds.values()

    def _outcome(
        self, encoder: Encoder, request: dict[str, Any], original: dict[str, Any], error: BaseException | None
    ) -> Any:
        if type(error) is hami.NoResult:
            return None
        if error is None:
            changed = [(key, value) for key, value in request.items() if original.get(key, original) is not value]
            sent = len(self._sender.sent)
            try:
                return ("answer", encoder.request(changed, f"the answer of {self._setup.expression}"))
            except (hami.DataTypeError, SharedMemoryFull) as raised:
                for block in self._sender.sent[sent:]:
                    block.busy.store(0)
                del self._sender.sent[sent:]
                encoder.forget_shared()
                return ("error", encode_error(raised))
        return ("error", encode_error(error))

    def _send_parts(self, number: int, index: int, parts: hami.Queue, unsent: dict[int, BaseException]) -> None:
        for part in parts:
            if index in unsent:
                continue
            try:
                with self._sending:
                    encoder = Encoder(self._sender, self._setup.pickles)
                    encoded = encoder.request([("part", part)], f"a part of {self._setup.expression}")
                    message = encoder.message(("part", number, index, encoded), self._control.to_parent.capacity)
                    self._put(message)
                    self._sender.sent.clear()
            except Exception as error:
                unsent[index] = error
                parts.close()

    # ---- cancellation and counters, on the watcher ----

    def _watch(self) -> None:
        word = self._control.cancelled
        seen = word.load()
        while True:
            if word.wait(seen, COUNT_PERIOD) == native.DONE:
                seen, call = word.load(), self._call_now
                if call is not None and call[0] == seen:
                    for queue in call[1]:
                        queue.close()
                    signal.pthread_kill(threading.main_thread().ident or 0, CANCEL_SIGNAL)
            self._send_counters()

    def _on_cancel_signal(self, *_: Any) -> None:
        call = self._call_now
        if call is not None and self._control.cancelled.load() == call[0]:
            raise _Cancelled

    def _send_counters(self) -> None:
        pipe = self._pipe
        if pipe is None:
            return
        counters = dict(pipe.stats()[self._setup.node].counters)
        added = {name: count - self._counted.get(name, 0) for name, count in counters.items()}
        added = {name: count for name, count in added.items() if count}
        self._counted = counters
        if added:
            self._tell("counts", added)


def _literal(value: Any) -> Any:
    """Return a value for a configuration that refers to nothing: the parent has resolved its references."""
    if isinstance(value, list):
        return [_literal(each) for each in value]
    return value.replace("${", "$${") if isinstance(value, str) else value


def main(link: int, memory: int, setup: bytes) -> None:
    """Run a child until its parent closes it or ends. The memory has its mailboxes, and `setup` a Setup."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Child(socket.socket(fileno=link), memory, setup).run()
