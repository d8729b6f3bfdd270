"""One thread of the parent that starts children, takes their logs and sees them end."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import marshal
import os
import queue
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

LARGEST = 64 << 10  # bytes of one message on the socket
FIRST_BEHIND_STREAMS = 3  # descriptors below are standard streams, which a child has or gets
EXIT_TIME = 1.0  # seconds from the end of the socket to that of the process
CODE = (
    "import sys\n"
    "sys.path[:] = filter(None, sys.path)\n"  # no modules of the current folder
    "import marshal, os\n"
    "link, memory, begin, size = map(int, sys.argv[1:])\n"
    "sys.path[:], environment, setup = marshal.loads(os.pread(memory, size, begin))\n"
    "os.environ.update(environment)\n"
    "from hami_process.child import main\n"
    "main(link, memory, setup)\n"
)


class Running:
    """A child process: its end of the socket, and its end."""

    def __init__(self, process: subprocess.Popen[bytes], link: socket.socket) -> None:
        self.process, self.link = process, link
        self.ended = threading.Event()
        self.on_end: Callable[[], None] = lambda: None
        self.on_counts: Callable[[dict[str, int]], None] = lambda counts: None
        self.killed_because = ""

    def kill(self, reason: str) -> None:
        """End the process, and those that it has started."""
        if not self.ended.is_set():
            self.killed_because = self.killed_because or reason
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)


class Monitor:
    """Its thread lives as long as the program: a child ends with the thread that has started it."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, self._run_tasks)
        threading.Thread(target=self._run, name="hami-process monitor", daemon=True).start()

    def start(self, memory: int, begin: int, size: int) -> Running:
        """Start a process, which runs `hami_process.child.main` as the content of a memory at this place says.

        The place has the path of modules, the environment, and the setup.
        """
        started: Future[Running] = Future()

        def task() -> None:
            try:
                started.set_result(self._start(memory, begin, size))
            except BaseException as error:
                started.set_exception(error)

        self._tasks.put(task)
        with contextlib.suppress(BlockingIOError):  # it is awake anyway
            os.write(self._wake_writer, b"x")
        return started.result()

    def _start(self, memory: int, begin: int, size: int) -> Running:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as ends:
            flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
            passed = []
            for each in (theirs.fileno(), memory):  # which may have the number of a stream that is closed
                passed.append(fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, FIRST_BEHIND_STREAMS))
                ends.callback(os.close, passed[-1])
            command = [sys.executable, *flags, "-c", CODE, *map(str, (*passed, begin, size))]
            # In a session of its own, Ctrl-C on the terminal goes to the parent only.
            process = subprocess.Popen(command, pass_fds=passed, stdin=subprocess.DEVNULL, start_new_session=True)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        ours.settimeout(5.0)
        running = Running(process, ours)
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._read(running))
        try:
            descriptor = os.pidfd_open(process.pid)
        except (AttributeError, OSError):  # an old kernel: the socket says when the process ends
            descriptor = None
        if descriptor is not None:
            self._selector.register(descriptor, selectors.EVENT_READ, lambda: self._end(running, descriptor))
        return running

    def _run(self) -> None:
        while True:
            self._take_events()  # whose end frees the last child: a loop here would keep it until the next event

    def _take_events(self) -> None:
        for key, _ in self._selector.select():
            try:
                key.data()
            except Exception:
                logging.getLogger("hami.process").exception("the monitor of child processes failed")

    def _run_tasks(self) -> None:
        os.read(self._wake_reader, 4096)
        while not self._tasks.empty():
            self._tasks.get()()

    def _read(self, running: Running) -> bool:
        """Take one message of a child; return whether there was one."""
        if running.ended.is_set():
            return False
        try:
            data = os.read(running.link.fileno(), LARGEST)  # `recv` would wait for as long as `send` may take
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._reap(running)
            return False
        kind, content = marshal.loads(data)
        if kind == "counts":
            running.on_counts(content)
        else:
            _log(content)
        return True

    def _end(self, running: Running, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)
        try:
            while self._read(running):  # what it has sent before it ended
                pass
        finally:
            self._reap(running)

    def _reap(self, running: Running) -> None:
        if running.ended.is_set():
            return
        self._selector.unregister(running.link)
        try:
            running.process.wait(EXIT_TIME)  # a socket is closed a moment before the process has ended
        except subprocess.TimeoutExpired:
            running.kill("it closed its connection")
        with contextlib.suppress(ProcessLookupError, PermissionError):  # processes that it has started
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait()
        running.ended.set()
        running.link.close()
        running.on_end()


def _log(record: dict[str, Any]) -> None:
    logger = logging.getLogger(record["name"])
    if logger.isEnabledFor(record["levelno"]):
        logger.handle(logging.makeLogRecord(record))


_lock = threading.Lock()
_monitor: Monitor | None = None


def monitor() -> Monitor:
    global _monitor
    with _lock:
        if _monitor is None:
            _monitor = Monitor()
        return _monitor


def _after_fork() -> None:
    """Forget the thread, which a forked process has not."""
    global _monitor, _lock
    _monitor, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
