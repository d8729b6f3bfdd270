"""The native door: threads without Python answer inference requests of native models, and probes.

A connection with any other request goes on in the door in Python, and comes back with a request that the native door
may answer. So both doors answer alike, and the limits of the door in Python hold for what is unusual, slow or wrong.

    accepted ──> native door <──────────────────────> Protocol
                     │ a result of another form, an error: Python renders the answer
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import json
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import CancelledError
from dataclasses import asdict
from typing import Any, Protocol

import hami

from hami_serve import access_log, tracing
from hami_serve.access_log import REQUEST_ID
from hami_serve.budget import Lease
from hami_serve.building import RESERVED
from hami_serve.cors import ANY, READABLE
from hami_serve.datatypes import DATATYPES
from hami_serve.errors import STOPPING
from hami_serve.failures import of_model, report
from hami_serve.http_app import answer_of_error
from hami_serve.http_body import off_loop
from hami_serve.http_exchange import STATUS_LINES
from hami_serve.http_tensors import HttpInference, TensorAnswer, is_long_to_render, render_answer, size_to_render
from hami_serve.http_times import Times
from hami_serve.inference import outputs_of
from hami_serve.journal import Entries, Journal
from hami_serve.metrics import answers
from hami_serve.model import Model
from hami_serve.serving import Serving

MAX_HOPS = 16  # of a connection to Python, after which it stays there
ERROR_SIZE = 256  # bytes of a message
MANY_CORES = 8  # from which two threads serve connections
FAULT = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n"  # if no other answer can be made
_P, _I32, _I64, _SIZE = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t
_I64_P, _TEXT = ctypes.POINTER(_I64), ctypes.c_char_p


_FUNCTIONS = {  # those of src/plugin.cpp, in the same order
    "open": ctypes.CFUNCTYPE(_P, _TEXT, _SIZE, _I32, _I64_P, _TEXT, _SIZE),
    "close": ctypes.CFUNCTYPE(None, _P),
    "event": ctypes.CFUNCTYPE(_I32, _P),
    "add": ctypes.CFUNCTYPE(_I32, _P, _I32, _I32, _TEXT, _SIZE),
    "take": ctypes.CFUNCTYPE(_I32, _P, *map(ctypes.POINTER, (_I32, _P, _SIZE, _P))),
    "release_handed": ctypes.CFUNCTYPE(None, _P),
    "take_unanswered": ctypes.CFUNCTYPE(_P, _P, _I64_P),
    "answer": ctypes.CFUNCTYPE(None, _P, _I64, _TEXT, _SIZE),
    "publish": ctypes.CFUNCTYPE(_I32, _P, _TEXT, _SIZE, _TEXT, _SIZE),
    "statistics": ctypes.CFUNCTYPE(_P, _P),
    "drain": ctypes.CFUNCTYPE(None, _P),
    "cancel": ctypes.CFUNCTYPE(None, _P),
    "connections": ctypes.CFUNCTYPE(_I64, _P),
    "open_bytes": ctypes.CFUNCTYPE(_I64, _P),
    "take_entries": ctypes.CFUNCTYPE(_P, _P, ctypes.POINTER(_P)),
    "release_entries": ctypes.CFUNCTYPE(None, _P),
    "stop": ctypes.CFUNCTYPE(None, _P),
    "release": ctypes.CFUNCTYPE(None, _P),
}


@functools.cache
def _functions() -> Any:
    return hami.native.functions("hami-serve::NativeDoor", **_FUNCTIONS)


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Calls(Protocol):
    """The calls of gRPC on the threads of a door."""

    @property
    def connections(self) -> int: ...
    def count(self) -> None:
        """Give what was counted to the metrics."""

    def closed(self) -> None:
        """Take note that the threads have ended."""

    def code_name(self, status: int) -> str:
        """Return the name of a status."""
        ...


class NativeDoor:
    """The native door of one server. Its methods are called on the thread of the loop, if nothing else is said."""

    def __init__(
        self,
        serving: Serving,
        max_body: int,
        token: str | None,
        *,
        loopback: bool,
        times: Times | None = None,
        origins: Collection[str] = (),
    ) -> None:
        """Make a door. `origins`: those of `cors.checked_origins`, whose pages may use it."""
        self._serving = serving
        self._native = _functions()
        self._models: dict[int, tuple[Model, object]] = {}  # by generation; with the capsule of the caller
        self._published: frozenset[int] = frozenset()  # keys of `_models`
        self._paths: frozenset[bytes] = frozenset()
        self._ready = False
        self._publishing = threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._grpc: Calls | None = None
        self._journal: Journal | None = None  # from the first request on that the log may have
        error = ctypes.create_string_buffer(ERROR_SIZE)
        limits = {
            "max_body": max_body,
            "max_open": serving.budget.limit,
            "only_loopback": loopback,
            "authorization": "" if token is None else f"Bearer {token}",
            "origins": [ANY] if ANY in origins else sorted(origins),
            "exposed": ", ".join(READABLE),
            "times": asdict(times or Times()),
        }
        given = json.dumps(limits).encode()
        loops = 2 if len(os.sched_getaffinity(0)) >= MANY_CORES else 1
        shared = ctypes.pointer(serving.budget.shared)
        self._door: int | None = self._native.open(given, len(given), loops, shared, error, ERROR_SIZE)
        if self._door is None:
            raise OSError(f"the native door cannot be opened: {error.value.decode()}")
        door = self._door
        serving.budget.outside = lambda: int(self._native.open_bytes(door))
        serving.watch(self.publish, self.count)

    def start(
        self, adopt: Callable[[socket.socket, bytes, int], Awaitable[None]], headers: list[tuple[bytes, bytes]]
    ) -> None:
        """Begin to pass connections to `adopt`: a socket, what has come of a request, and how often it came here."""
        self._adopt, self._headers = adopt, headers
        self._loop = asyncio.get_running_loop()
        self._event = self._native.event(self._door)
        self._loop.add_reader(self._event, self._on_event)
        self.publish()

    def add(self, connection: socket.socket, hops: int = 0, data: bytes = b"") -> None:
        """Let a connection, which this takes, go on in the native door."""
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        descriptor = connection.detach()
        if self._native.add(self._door, descriptor, hops, data, len(data)):
            os.close(descriptor)

    @property
    def address(self) -> int | None:
        """That of the native object, for gRPC."""
        return self._door

    def attach(self, grpc: Calls) -> None:
        """Let gRPC use the threads of this door."""
        self._grpc = grpc

    def model(self, key: int) -> Model:
        """Return the model of a request that has run here."""
        return self._models[key][0]

    def wants(self, data: bytes, hops: int) -> bool:
        """Return whether the native door may answer the request that begins with these bytes."""
        if hops >= MAX_HOPS or not data.startswith(b"POST "):
            return False
        return data[5 : data.find(b" ", 5)] in self._paths and not self._serving.draining

    @property
    def connections(self) -> int:
        of_grpc = self._grpc.connections if self._grpc is not None else 0
        return int(self._native.connections(self._door)) + len(self._tasks) + of_grpc

    def drain(self) -> None:
        self._native.drain(self._door)

    def cancel(self) -> None:
        self._native.cancel(self._door)

    async def close(self) -> None:
        """End all connections and wait for the runs of their requests."""
        self._loop.remove_reader(self._event)
        self._serving.watch(lambda: None, lambda: None)
        self.count()
        self._serving.budget.outside = lambda: 0
        with self._publishing:  # a thread may still use it
            door, self._door = self._door, None
        await asyncio.to_thread(self._end, door)
        if self._grpc is not None:
            self._grpc.closed()

    def _end(self, door: int | None) -> None:
        self._native.stop(door)
        if self._journal is None or self._journal.close():  # else its thread still uses the door
            self._native.close(door)

    # ---- the journal, on its thread ----

    def _take_entries(self, door: int) -> Entries | None:
        batch = _P()
        address = self._native.take_entries(door, ctypes.byref(batch))
        return Entries(address, lambda: self._native.release_entries(batch)) if address else None

    def _code_name(self, status: int) -> str:
        assert self._grpc is not None
        return self._grpc.code_name(status)

    # ---- models; these are called on any thread ----

    def publish(self) -> None:
        """Let the native door know which models it may call now."""
        with self._publishing:
            if self._door is None:
                return
            serving = self._serving
            self._ready = serving.ready
            served = serving.rounder.registry.served() if serving.loaded else {}
            entries: dict[int, dict[str, Any]] = {}
            for path, model in served.items():
                if (found := self._entry(model)) is not None:
                    entries.setdefault(found["key"], found)["paths"].append(path)
            table: dict[str, Any] = {"ready": self._ready, "reserved": sorted(RESERVED), "models": [*entries.values()]}
            table["logs"], table["traces"] = access_log.is_on(), tracing.is_on()
            if (table["logs"] or table["traces"]) and self._journal is None:
                self._journal = Journal(functools.partial(self._take_entries, self._door), self.model, self._code_name)
            data, error = json.dumps(table).encode(), ctypes.create_string_buffer(ERROR_SIZE)
            if self._native.publish(self._door, data, len(data), error, ERROR_SIZE):
                raise RuntimeError(f"the native door does not take its models: {error.value.decode()}")
            self._published = frozenset(entries)
            self._paths = frozenset(path.encode() for each in entries.values() for path in each["paths"])

    def publish_if_ready(self) -> None:
        if self._serving.ready != self._ready:
            self.publish()

    def _entry(self, model: Model) -> dict[str, Any] | None:
        """Return what the native door has to know of a model; None if it cannot answer its requests."""
        pipe, key = model.pipe, model.handle.generation
        if tracing.is_on() and not tracing.is_native():
            return None
        if pipe is None or model.version.decoupled or model.takes_rows or hami.native.uses_python(pipe):
            return None
        if any(spec.datatype not in DATATYPES for spec in model.inputs):
            return None
        if key not in self._models:
            self._models[key] = (model, hami.native.caller(pipe))

        def specs(given: Any) -> list[dict[str, Any]]:
            keys = ("name", "datatype", "shape", "is_text")
            return [{key: getattr(each, key) for key in keys} for each in given]

        return {
            "key": key,
            "name": model.handle.component,
            "version": model.handle.version,
            "paths": [],
            "caller": _capsule_pointer(self._models[key][1], b"hami.caller.v1"),
            "inputs": specs(model.inputs),
            "outputs": specs(model.outputs),
            "checks_inputs": bool(model.version.inputs),
            "checks_outputs": bool(model.version.outputs),
            "takes_text": None if model.data_type is None else model.data_type == "text",
        }

    def count(self) -> None:
        """Add the requests that have ended to the statistics of their models."""
        with self._publishing:
            if self._door is None:
                return
            counted = json.loads(self._text(self._native.statistics(self._door)) or b"{}")
            for status, name in ((200, "answers"), (408, "timeouts"), (access_log.CLIENT_LEFT, "left")):
                if counted.get(name):
                    answers.count("HTTP", status, counted[name])
            if self._grpc is not None:
                self._grpc.count()
            kept = {*self._published}
            for each in counted.get("models", ()):
                kept.add(key := each.pop("key"))
                self._serving.rounder.registry.count_native(self._models[key][0], **each)
            self._models = {key: self._models[key] for key in kept}

    # ---- what the native door leaves to Python ----

    def _on_event(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._event, 8)
        hops, data, size, handed = _I32(), _P(), _SIZE(), _P()
        given = tuple(map(ctypes.byref, (hops, data, size, handed)))
        while (descriptor := self._native.take(self._door, *given)) >= 0:
            connection = socket.socket(fileno=descriptor)
            try:
                received = ctypes.string_at(data.value, size.value) if data.value else b""
            except MemoryError:  # the connection ends, and the others go on
                connection.close()
                continue
            finally:
                self._native.release_handed(handed)
            self._start(self._adopt(connection, received, hops.value))
        number = _I64()
        while described := self._native.take_unanswered(self._door, ctypes.byref(number)):
            try:
                given = json.loads(ctypes.string_at(described))
            except MemoryError:  # as above
                self._native.answer(self._door, number, b"", 0)
                continue
            self._start(self._answer(given))

    def _text(self, address: int | None) -> bytes:
        """Return a text of the native door, and release it."""
        if not address:
            return b""
        text = ctypes.string_at(address)
        self._native.release(address)
        return text

    def _start(self, running: Any) -> None:
        task = self._loop.create_task(running)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, given: dict[str, Any]) -> None:
        """Answer a request that has run in the native door."""
        data = FAULT
        lease = self._serving.budget.lease(given["charged"])
        try:
            data = await self._rendered(given, lease)
        except BaseException as error:  # a request without an answer would keep its client waiting
            report(error, "HTTP", "the answer to a request", given["id"])
        finally:
            if self._door is not None:
                self._native.answer(self._door, given["number"], data, len(data))
            lease.close()

    async def _rendered(self, given: dict[str, Any], lease: Lease) -> bytes:
        model = self.model(given["model"])
        inference = HttpInference(
            inputs={},
            outputs=tuple(name for name, _ in given["outputs"]),
            id=given["id"],
            binary={name: binary for name, binary in given["outputs"] if binary is not None},
            all_binary=given["all_binary"],
        )
        scope = {"path_params": {"name": model.handle.component}, REQUEST_ID: given["id"], "method": "POST"}
        try:
            with of_model():
                if given["error"]:
                    raise hami.native.value_of(given["error"]).exception()
                request = {key: hami.native.value_of(address) for key, address in given["keys"].items()}
            outputs = outputs_of(model, request, inference)
            render = (model, inference, outputs)
            if is_long_to_render(inference, outputs):
                lease.add(size_to_render(inference, outputs))
                response: Any = TensorAnswer(await off_loop(render_answer, *render))
            else:
                response = TensorAnswer(render_answer(*render))
        except CancelledError:
            response = answer_of_error(hami.PipeClosed(STOPPING), scope)
        except BaseException as error:
            response = answer_of_error(error, scope)
        answers.count("HTTP", getattr(response, "status_code", 200))
        return await self._bytes_of(response, scope)

    async def _bytes_of(self, response: Any, scope: dict[str, Any]) -> bytes:
        """Return the answer of an application of ASGI as HTTP/1.1."""
        parts: list[bytes] = []

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                parts.append(STATUS_LINES[message["status"]])
                headers = [*self._headers, *message["headers"]]
                parts.extend(b"%b: %b\r\n" % (name.lower(), value) for name, value in headers)
                parts.append(b"\r\n")
            else:
                parts.append(message.get("body", b""))

        await response({"type": "http", **scope}, None, send)
        return b"".join(parts)
