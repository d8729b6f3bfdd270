"""Runs `hami serve --workers N`: processes that share the ports, and are started again when they die.

    starting ──> ready ──> ended

A worker is `starting` until its models are loaded. When the server starts, all workers bind the ports at once, so that
probes are answered; requests wait. A worker that is started again binds them when it is ready: until then, the kernel
distributes connections among the others. A worker that ends unasked is started again; if it had not become ready, after
a delay that doubles each time. If a worker fails when the server starts, the server ends with its error.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType

import hami

from hami_serve.errors import text_of
from hami_serve.log_lines import logging_to
from hami_serve.peers import Peers
from hami_serve.server import STDERR, announcement, bind, listen, run

KILL_S = 10.0  # after the time to drain, for a worker to end
MAX_DELAY_S = 30.0  # before a worker that does not become ready is started again


class Worker:
    """A process of the server, as its supervisor sees it."""

    def __init__(
        self, arguments: argparse.Namespace, peers: Peers, number: int, *, beside_others: bool = False
    ) -> None:
        context = multiprocessing.get_context("spawn")  # threads and accelerators do not survive a fork
        self.connection, other = context.Pipe()
        self.number = number
        self.ready = False
        self.process: SpawnProcess = context.Process(target=_work, args=(arguments, peers, other, beside_others))
        # Ctrl-C reaches every process of a terminal, and the supervisor acts on it: a worker inherits the mask.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        other.close()

    def __str__(self) -> str:
        return f"worker {self.number} (process {self.process.pid})"

    def receive(self) -> list[str] | BaseException | None:
        """Return the names of the models that the worker serves, or why it cannot; None if it has ended."""
        try:
            message: list[str] | BaseException = self.connection.recv()
        except (EOFError, OSError):
            return None
        self.ready = isinstance(message, list)
        return message

    def end(self) -> str:
        """Release an ended worker; return how it ended."""
        self.process.join()
        self.connection.close()
        status = self.process.exitcode or 0
        if status >= 0:
            return f"ended with status {status}"
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-status).name}"
        return f"was ended by signal {-status}"


def supervise(arguments: argparse.Namespace) -> int:
    """Serve with several processes until a signal ends them; return the exit status."""
    with contextlib.ExitStack() as reserved:
        for option in ("http", "grpc"):
            if (port := getattr(arguments, option)) is not None:
                setattr(arguments, option, _reserve(reserved, arguments.host, port))
        folder = reserved.enter_context(tempfile.TemporaryDirectory(prefix="hami-serve-"))
        reserved.enter_context(logging_to(STDERR, as_json=arguments.log == "json"))
        return _Supervisor(arguments, Path(folder)).run()


def _reserve(stack: contextlib.ExitStack, host: str, port: int) -> int:
    """Keep a port for the workers, and return its number. A socket that does not listen gets no connections."""
    with listen(host, port) as alone:  # fails if another server listens there, which a shared port would not
        port = alone.getsockname()[1]
    stack.enter_context(bind(host, port, shared=True))
    return port


class _Supervisor:
    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self._arguments = arguments
        self._folder = folder
        self._workers: dict[int, Worker] = {}
        self._delays: dict[int, float] = {}  # of workers that did not become ready, by number
        self._due: dict[int, float] = {}  # when a worker is started again
        self._serving = False  # every worker has been ready
        self._deadline: float | None = None  # for the workers to end, from the signal on
        self._killed = False
        self._signalled, self._wake = socket.socketpair()

    def run(self) -> int:
        with self._signals():
            try:
                for number in range(self._arguments.workers):
                    self._start(number)
                while self._workers or (self._due and self._deadline is None):
                    self._step()
            finally:
                for worker in self._workers.values():
                    worker.process.kill()
                    worker.end()
        return 1 if self._killed else 0

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._signalled.close()
            self._wake.close()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._deadline is None:
            self._deadline = time.monotonic() + self._arguments.drain + KILL_S
            self._wake.send(b"\0")

    def _start(self, number: int) -> None:
        peers = Peers(self._folder, self._arguments.workers, number)
        self._workers[number] = Worker(self._arguments, peers, number, beside_others=self._serving)

    def _step(self) -> None:
        """Wait for the next event, and handle all that have happened."""
        waited: list[Connection | socket.socket | int] = [self._signalled]
        waited += [worker.process.sentinel for worker in self._workers.values()]
        waited += [worker.connection for worker in self._workers.values() if not worker.ready]
        happened = wait(waited, self._time_left())
        if self._signalled in happened:
            self._signalled.recv(1)
            for worker in self._workers.values():
                worker.process.terminate()
        for worker in list(self._workers.values()):
            if worker.connection in happened and not worker.ready:
                self._received(worker, worker.receive())
            if worker.process.sentinel in happened:
                self._ended(worker)
        self._on_time()

    def _time_left(self) -> float | None:
        times = [*self._due.values()] if self._deadline is None else [self._deadline]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _on_time(self) -> None:
        now = time.monotonic()
        if self._deadline is not None:
            if now >= self._deadline:
                self._killed = True
                for worker in self._workers.values():
                    _say(f"{worker} has not ended in time and is killed")
                    worker.process.kill()
                self._deadline = now + KILL_S
            return
        for number in [number for number, due in self._due.items() if now >= due]:
            del self._due[number]
            self._start(number)

    def _received(self, worker: Worker, message: list[str] | BaseException | None) -> None:
        if isinstance(message, BaseException):
            if not self._serving:
                raise message
            _say(f"{worker} has failed to start: {text_of(message)}")
        elif message is not None:
            self._delays.pop(worker.number, None)
            if self._serving:
                _say(f"{worker} serves")
            elif all(each.ready for each in self._workers.values()):
                self._serving = True
                print(announcement(message, self._arguments, len(self._workers)), flush=True)

    def _ended(self, worker: Worker) -> None:
        del self._workers[worker.number]
        how = f"{worker} {worker.end()}"
        if self._deadline is not None:
            return
        if not self._serving:
            raise hami.Error(f"{how} before its models were loaded")
        delay = 0.0
        if not worker.ready:
            delay = min(MAX_DELAY_S, 2 * self._delays.get(worker.number, 0.5))
            self._delays[worker.number] = delay
        _say(f"{how}; it is started again{f' in {delay:g} s' if delay else ''}")
        self._due[worker.number] = time.monotonic() + delay


def _say(text: str) -> None:
    logging.getLogger("hami.serve").warning("%s", text)


def _work(arguments: argparse.Namespace, peers: Peers, supervisor: Connection, beside_others: bool) -> None:
    """Serve in a process of its own, until SIGTERM or the end of the supervisor."""
    if not faulthandler.is_enabled():
        faulthandler.enable()
    threading.Thread(target=_end_with, args=(supervisor,), daemon=True).start()
    try:
        run(arguments, supervisor.send, peers, beside_others=beside_others)
    except Exception as error:
        if arguments.traceback:
            import traceback

            traceback.print_exception(error)
        supervisor.send(_portable(error))
        sys.exit(1)


def _end_with(supervisor: Connection) -> None:
    """Drain when the supervisor has ended: nothing else would ever end this process."""
    with contextlib.suppress(EOFError, OSError):
        supervisor.recv()
    os.kill(os.getpid(), signal.SIGTERM)


def _portable(error: Exception) -> Exception:
    """Return an exception that another process can receive."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return hami.Error(text_of(error))
    return error
