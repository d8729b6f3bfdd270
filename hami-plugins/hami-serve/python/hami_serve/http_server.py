"""The server of HTTP: it accepts connections, serves them with `Protocol`, and drains on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator, Sequence
from email.utils import formatdate
from types import FrameType
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

from hami_serve.http_protocol import Protocol, Shared
from hami_serve.http_times import Times
from hami_serve.listener import Listener
from hami_serve.serving import Serving

if TYPE_CHECKING:
    from hami_serve.native_door import NativeDoor

TICK_S = 0.1  # between looks at what has changed
TICKS = 10  # between looks at the connections
STOPPING_TICK_S = 0.05  # between looks at the connections while the server stops
LAST_ANSWERS_S = 1.0  # for the answers to requests that did not end in time
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class HttpServer:
    """Serves an application of ASGI until a signal or `should_exit`, and ends after its requests have ended.

    The application has no lifespan: the server loads the models, and closes them.
    """

    def __init__(
        self,
        app: ASGIApp,
        serving: Serving,
        drain: float,
        native: NativeDoor | None = None,
        times: Times | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Make a server. `native`: the door that connections come to first."""
        self._shared = Shared(app)
        self._native = native
        self._times = times or Times()
        self._tls = tls
        self._serving = serving
        self._drain = drain
        self._listeners: list[Listener] = []
        self._started: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None  # of the start, before a signal
        self._is_stopping = False
        self._is_forced = False  # open requests are not waited for
        self.should_exit = False
        self.when_started: Callable[[], Coroutine[Any, Any, None]] | None = None  # a failure of it ends the server
        self.beside: Coroutine[Any, Any, None] | None = None  # ends another server while this one drains

    async def serve(self, listening: Sequence[socket.socket]) -> None:
        """Serve on these sockets, which this closes."""
        with self.capture_signals():
            await self._start(listening)
            count = 0
            while not self.should_exit:
                with contextlib.suppress(MemoryError):  # the next look does the rest
                    self._look(connections_too=count % TICKS == 0)
                count += 1
                await asyncio.sleep(TICK_S)
            await self._stop()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let signals end the server; a second SIGINT does not wait for open requests."""
        before = {number: signal.signal(number, self._end_by_signal) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end_by_signal(self, number: int, _: FrameType | None) -> None:
        self._serving.drain(self._drain)
        self._is_forced = self._is_forced or (self.should_exit and number == signal.SIGINT)
        self.should_exit = True

    async def _start(self, listening: Sequence[socket.socket]) -> None:
        if not self._serving.begun:  # else requests wait for the models, and probes do not
            await self._serving.started()
        self._set_date()
        take = None
        if native := self._native:
            native.start(self._adopt, self._shared.headers)
            take = native.add
        self._listeners = [Listener(each, self._connection, self._tls, take) for each in listening]
        if self.when_started is not None:
            self._started = asyncio.get_running_loop().create_task(self.when_started())
            self._started.add_done_callback(self._end_if_failed)

    def _end_if_failed(self, task: asyncio.Task[None]) -> None:
        failure = None if task.cancelled() else task.exception()
        if failure is not None and not self._serving.draining:  # afterwards, the models are closed while they load
            self._failure = failure
            self.should_exit = True

    def _connection(self) -> asyncio.BufferedProtocol:
        return Protocol(self._shared, times=self._times)

    async def _adopt(self, connection: socket.socket, received: bytes, hops: int) -> None:
        """Go on with a connection of the native door."""

        def protocol() -> asyncio.BufferedProtocol:
            made = Protocol(self._shared, times=self._times, native=self._native, received=received, hops=hops)
            if self._is_stopping:
                made.shutdown()
            return made

        try:
            connection.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(protocol, connection)
        except OSError:  # the client has left
            connection.close()

    def _look(self, *, connections_too: bool) -> None:
        if self._native is not None:
            self._native.publish_if_ready()
        if connections_too:
            self._set_date()
            self._close_overdue()
            if self._native is not None:
                self._native.count()

    def _set_date(self) -> None:
        self._shared.headers[:] = [(b"date", formatdate(usegmt=True).encode())]

    def _announce_end(self) -> None:
        if self._native is not None:
            self._native.drain()
        for connection in list(self._shared.connections):
            if not connection.stopping:
                connection.shutdown()

    def _close_overdue(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in list(self._shared.connections):
            connection.close_if_overdue(now)

    async def _stop(self) -> None:
        """Answer what clients have sent, at most until the end of the time to drain."""
        loop = asyncio.get_running_loop()
        left = self._serving.drain_left()
        until = float("inf") if left is None else loop.time() + left
        self._is_stopping = True
        self._announce_end()
        beside = loop.create_task(self.beside) if self.beside is not None else None
        await asyncio.gather(*(listener.close() for listener in self._listeners))
        while self._is_busy() and loop.time() < until and not self._is_forced:
            self._announce_end()
            self._close_overdue()
            await asyncio.sleep(STOPPING_TICK_S)
        if self._native is not None:
            self._native.cancel()  # its requests are answered with 503, too
        if tasks := list(self._shared.tasks):
            for task in tasks:
                task.cancel()  # it is answered with 503
            await asyncio.wait(tasks, timeout=LAST_ANSWERS_S)
        if self._native is not None:
            last = loop.time() + LAST_ANSWERS_S
            while self._native.connections and loop.time() < last:
                await asyncio.sleep(STOPPING_TICK_S)
        if beside is not None:  # before the models are closed
            await beside
        if self._native is not None:
            await self._native.close()
        if not self._is_forced:
            await asyncio.to_thread(self._serving.stop)
        if self._started is not None:
            self._started.cancel()
        if self._failure is not None:
            raise self._failure

    def _is_busy(self) -> bool:
        if self._native is not None and self._native.connections:
            return True
        return bool(self._shared.connections or self._shared.tasks)
