"""gRPC at the native door: its threads read HTTP/2, and answer ModelInfer of native models without Python.

Python answers every other call, and what is unusual of ModelInfer, with the methods that grpcio serves too. For these
calls, the native door passes each message when the method asks for it, and takes the answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import json
import os
import socket
from enum import IntEnum
from typing import Any, NamedTuple

import grpc
import grpc.aio
import hami

from hami_serve.access import MISSING
from hami_serve.budget import Budget
from hami_serve.errors import STOPPING, short
from hami_serve.failures import log_rejected, of_model, report
from hami_serve.grpc_call import EOF, GrpcCall
from hami_serve.grpc_messages import SERVICE
from hami_serve.grpc_server import (
    INFER,
    LAST_ANSWERS_S,
    MAX_ANSWER,
    NO_MESSAGE,
    WAIT_S,
    Health,
    add_services,
    method_handlers,
    rendered,
    unary,
)
from hami_serve.grpc_stopping import LastCalls
from hami_serve.grpc_tensors import Response, joined, receive
from hami_serve.inference import Inference, outputs_on_loop
from hami_serve.listener import Listener
from hami_serve.metrics import answers
from hami_serve.native_door import NativeDoor
from hami_serve.serving import Serving

AT_ONCE = 64  # events, before others have the loop
HTTP_STATUS = {  # in the log, of calls that the native door rejects
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.DEADLINE_EXCEEDED: 408,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 413,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
}
CODES = {code.value[0]: code for code in grpc.StatusCode}
STOPPING_TICK_S = 0.02  # between looks at the connections while the server stops
_P, _I32, _I64, _SIZE, _TEXT = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t, ctypes.c_char_p


_FUNCTIONS = {  # those of src/grpc_plugin.cpp, in the same order
    "open": ctypes.CFUNCTYPE(_P, _P, _TEXT, _TEXT, _TEXT, _SIZE),
    "close": ctypes.CFUNCTYPE(None, _P),
    "event": ctypes.CFUNCTYPE(_I32, _P),
    "add": ctypes.CFUNCTYPE(_I32, _P, _I32),
    "take": ctypes.CFUNCTYPE(_I32, _P, *map(ctypes.POINTER, (_I64, _P, _SIZE, _P))),
    "release": ctypes.CFUNCTYPE(None, _P, _P),
    "ask": ctypes.CFUNCTYPE(None, _P, _I64),
    "write": ctypes.CFUNCTYPE(None, _P, _I64, _TEXT, _SIZE),
    "finish": ctypes.CFUNCTYPE(None, _P, _I64, _I32, _TEXT, _SIZE),
    "wait_for_memory": ctypes.CFUNCTYPE(None, _P, _I64),
    "answers": ctypes.CFUNCTYPE(ctypes.c_uint64, _P),
    "connections": ctypes.CFUNCTYPE(_I64, _P),
}


class _Event(IntEnum):
    """What the native door says, as in src/grpc.hpp."""

    BEGUN = 1
    MESSAGE = 2
    COMPRESSED = 3
    ENDED = 4
    WRITTEN = 5
    GONE = 6
    COMPLETED = 7
    REJECTED = 8


class _Ran(NamedTuple):
    """A request that has run in the native door, as far as its answer and the log need it."""

    model_name: str
    id: str


@functools.cache
def functions() -> Any:
    """Return the functions of the native door; None if it was compiled without nghttp2."""
    try:
        return hami.native.functions("hami-serve::NativeGrpc", **_FUNCTIONS)
    except hami.NotFound:
        return None


class NativeGrpc:
    """A server of gRPC in a native door and the current asyncio loop, with the methods of GrpcServer."""

    def __init__(self, native: NativeDoor, serving: Serving, listening: socket.socket, max_body: int) -> None:
        self._native = functions()
        self._door = native
        self._serving = serving
        self._listening = listening
        self.port: int = listening.getsockname()[1]
        self.budget: Budget = serving.budget
        self.max_body = max_body
        self._last = LastCalls()
        self._calls: dict[int, GrpcCall] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        found_methods = method_handlers(serving, self._last)
        self._handlers: list[Any] = [grpc.method_handlers_generic_handler(SERVICE, found_methods)]
        self._health = Health()
        add_services(self, self._health.servicer)
        texts = (MISSING.encode(), NO_MESSAGE.encode(), STOPPING.encode())
        self._grpc: int | None = self._native.open(native.address, *texts, MAX_ANSWER)
        if self._grpc is None:
            raise OSError("gRPC cannot be opened at the native door")
        self.wait_for_memory(WAIT_S)
        native.attach(self)

    # ---- the handlers of the packages of gRPC ----

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        self._handlers += handlers

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Those handlers are among the generic ones."""

    # ---- life ----

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = self._native.event(self._grpc)
        self._loop.add_reader(self._event, self._on_event)
        self._listener = Listener(self._listening, asyncio.Protocol, take=self._take)
        await self._health.set(self._serving.ready)

    async def set_ready(self) -> None:
        """Tell clients that the models are loaded."""
        await self._health.set(True)

    async def stop(self, grace: float) -> None:
        """Answer what clients have sent, at most for `grace` seconds."""
        until = self._loop.time() + grace
        await self._health.servicer.enter_graceful_shutdown()
        await self._listener.close()
        self._door.drain()
        for call in list(self._calls.values()):
            if not call.method.startswith(f"/{SERVICE}/"):  # such as a client that watches the health
                call.finish(grpc.StatusCode.UNAVAILABLE, STOPPING)
                call.gone()
        ended = self._loop.create_task(self._ended(until + LAST_ANSWERS_S))
        await self._last.end(ended, until)
        if not ended.done():
            self._door.cancel()
        await ended

    async def _ended(self, until: float) -> None:
        while self.connections and self._loop.time() < until:
            await asyncio.sleep(STOPPING_TICK_S)

    def closed(self) -> None:
        """Free what is native; the native door has closed."""
        self._loop.remove_reader(self._event)
        found, self._grpc = self._grpc, None
        self._native.close(found)
        for task in self._tasks:
            task.cancel()

    @property
    def connections(self) -> int:
        return 0 if self._grpc is None else int(self._native.connections(self._grpc))

    def code_name(self, status: int) -> str:
        return str(CODES[status].name)

    def count(self) -> None:
        """Count the answers of the native door. This is called on any thread, before the door has closed."""
        if self._grpc is not None and (found := self._native.answers(self._grpc)):
            answers.count("gRPC", "OK", found)

    def wait_for_memory(self, seconds: float) -> None:
        """Let a call wait so long for the memory of its message, before it is rejected."""
        self._native.wait_for_memory(self._grpc, int(seconds * 1e9))

    def _take(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        descriptor = connection.detach()
        if self._native.add(self._grpc, descriptor):
            os.close(descriptor)

    # ---- for the calls ----

    def ask(self, number: int) -> None:
        if self._grpc is not None:
            self._native.ask(self._grpc, number)

    def write(self, number: int, data: bytes) -> None:
        if self._grpc is not None:
            self._native.write(self._grpc, number, data, len(data))

    def finish(self, number: int, status: int, details: str) -> None:
        if self._grpc is not None:
            text = details.encode("utf-8", "replace")
            self._native.finish(self._grpc, number, status, text, len(text))

    # ---- events ----

    def _on_event(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._event, 8)
        self._take_events()

    def _take_events(self) -> None:
        number, data, size, event = _I64(), _P(), _SIZE(), _P()
        given = tuple(map(ctypes.byref, (number, data, size, event)))
        for _ in range(AT_ONCE):
            if self._grpc is None or not (kind := self._native.take(self._grpc, *given)):
                return
            call = self._calls.get(number.value)
            try:
                try:
                    content = ctypes.string_at(data.value, size.value) if data.value and size.value else b""
                    if call is not None and kind in (_Event.MESSAGE, _Event.COMPRESSED) and call.method == INFER:
                        call.lease.take_over(len(content))
                finally:
                    self._native.release(self._grpc, event)
                self._handle(kind, number.value, content, call)
            except Exception as error:  # those behind it must be taken: their wake-up has passed
                self._end(number.value, call, error)
        self._loop.call_soon(self._take_events)

    def _end(self, number: int, call: GrpcCall | None, error: Exception) -> None:
        """End a call of which an event could not be handled."""
        failure = report(error, "gRPC", "a call" if call is None else short(call.method))
        code = getattr(grpc.StatusCode, failure.status.grpc)
        if call is None:
            self.finish(number, code.value[0], failure.text)
        else:
            call.finish(code, failure.text)
            call.gone()

    def _handle(self, kind: int, number: int, content: bytes, call: GrpcCall | None) -> None:
        if kind == _Event.REJECTED:
            self._rejected(**json.loads(content))
        elif kind == _Event.BEGUN:
            self._start(call := GrpcCall(self, number, json.loads(content)), number, self._run(call))
        elif kind == _Event.COMPLETED:
            described = json.loads(content)
            self._start(call := GrpcCall(self, number, {"method": INFER}), number, self._render(call, described))
        elif call is None:  # it has ended here
            return
        elif kind == _Event.ENDED:
            call.ended()
        elif kind == _Event.WRITTEN:
            call.written()
        elif kind == _Event.GONE:
            call.gone()
        else:
            call.received(content, kind == _Event.COMPRESSED)

    def _start(self, call: GrpcCall, number: int, running: Any) -> None:
        self._calls[number] = call
        call.task = task = self._loop.create_task(running)
        self._tasks.add(task)

        def ended(_: object) -> None:
            self._tasks.discard(task)
            self._calls.pop(number, None)
            call.lease.close()
            call.finish(grpc.StatusCode.UNAVAILABLE, STOPPING)  # if it has no status

        task.add_done_callback(ended)

    def _rejected(self, method: str, text: str, status: int) -> None:
        log_rejected("gRPC", short(method), HTTP_STATUS.get(CODES[status], 400), text)
        answers.count("gRPC", CODES[status].name)

    async def _run(self, call: GrpcCall) -> None:
        """Answer a call with its method."""
        details = _Details(call.method, call.invocation_metadata())
        handler = next((found for each in self._handlers if (found := each.service(details)) is not None), None)
        try:
            if handler is None:
                await call.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
            await self._answer(call, handler)
            call.finish(grpc.StatusCode.OK)
        except grpc.aio.AbortError:
            pass
        except asyncio.CancelledError:
            call.finish(grpc.StatusCode.UNAVAILABLE, STOPPING)  # if its client is still there
        except BaseException as error:
            failure = report(error, "gRPC", short(call.method))
            call.finish(getattr(grpc.StatusCode, failure.status.grpc), failure.text)

    async def _answer(self, call: GrpcCall, handler: Any) -> None:
        call.serialize = handler.response_serializer
        call.deserialize = handler.request_deserializer
        given: Any = call
        if call.method == INFER:
            call.serialize, call.deserialize = joined, functools.partial(receive, lease=call.lease)
        if not handler.request_streaming:
            given = await call.read()
            if given is EOF:
                self._rejected(call.method, NO_MESSAGE, grpc.StatusCode.INVALID_ARGUMENT.value[0])
                await call.abort(grpc.StatusCode.INVALID_ARGUMENT, NO_MESSAGE)
        if not handler.response_streaming:
            assert call.serialize is not None
            answer = await handler.unary_unary(given, call)
            call.send(call.serialize(answer))
            return
        answers_of = handler.stream_stream if handler.request_streaming else handler.unary_stream
        running = answers_of(given, call)
        if hasattr(running, "__aiter__"):
            async for answer in running:
                await call.write(answer)
        else:
            await running

    async def _render(self, call: GrpcCall, given: dict[str, Any]) -> None:
        """Answer a request that has run in the native door, whose answer it does not render."""
        model = self._door.model(given["model"])
        inference = Inference(inputs={}, outputs=tuple(name for name, _ in given["outputs"]), id=given["id"])

        async def answer(_: Any, __: Any) -> Any:
            with of_model():
                if given["error"]:
                    raise hami.native.value_of(given["error"]).exception()
                request = {key: hami.native.value_of(address) for key, address in given["keys"].items()}
            outputs = await outputs_on_loop(model, request, inference)
            return await rendered(model, given["id"], outputs, given["all_binary"])

        ran = _Ran(model.handle.component, given["id"])
        with contextlib.suppress(grpc.aio.AbortError, asyncio.CancelledError):
            call.send(joined(await unary("ModelInfer", answer, Response, self._last, noted=True)(ran, call)))
            call.finish(grpc.StatusCode.OK)


class _Details(NamedTuple):
    """As grpc.HandlerCallDetails."""

    method: str
    invocation_metadata: tuple[tuple[str, str], ...]
