"""Backends for the tests. They are registered once, in the process of the tests."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import queue
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Collection
from pathlib import Path

import hami
import numpy as np
import pytest

from hami_serve.access_log import AccessLog
from hami_serve.cors import Cors
from hami_serve.http_app import MAX_BODY, Direct, application
from hami_serve.http_server import HttpServer
from hami_serve.http_times import Times
from hami_serve.native_door import NativeDoor
from hami_serve.server import listen
from hami_serve.serving import Serving

sys.path.append(str(Path(__file__).resolve().parents[3] / "tests" / "plugins"))  # together.py
# Under AddressSanitizer only the tests that run native code, and those of HTTP at the native door.
NATIVE = ("test_library.py", "test_native_door.py", "test_native_grpc.py", "test_http.py", "test_mixed_load.py")
if "asan" in os.environ.get("LD_PRELOAD", ""):
    collect_ignore = [each.name for each in Path(__file__).parent.glob("test_*.py") if each.name not in NATIVE]


class Gate:
    """Holds requests of the backend TestGate until it is opened, and tells when one has begun."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.opened = threading.Event()
        self.cancelled = threading.Event()


GATES: dict[str, Gate] = {}


@hami.register
class TestGate(hami.Backend):
    gate: str

    def forward(self, batch):
        gate = GATES[self.gate]
        for item in batch:
            gate.begun.release()
            while not gate.opened.wait(0.005):
                if item.cancelled:
                    gate.cancelled.set()
                    break
            item["result"] = self.gate


@hami.register
class TestSay(hami.Backend):
    word: str
    device: str = "cpu"

    def init(self, options):
        if self.device not in ("cpu", "npu:1"):
            raise RuntimeError(f"there is no device {self.device}")

    def forward(self, batch):
        for item in batch:
            item["result"] = f"{self.word} on {self.device}"


@hami.register
class TestBroken(hami.Backend):
    def init(self, options):
        raise RuntimeError("the file of the model is damaged")

    def forward(self, batch):
        raise AssertionError("never built")


@hami.register
class TestFails(hami.Backend):
    def forward(self, batch):
        for item in batch:
            item.fail(ValueError("not a picture"))


@pytest.fixture
def gate():
    """gate(name) makes a gate for TestGate; every gate opens at the end of the test."""
    made = []

    def make(name: str) -> Gate:
        GATES[name] = Gate()
        made.append(GATES[name])
        return GATES[name]

    yield make
    for each in made:
        each.opened.set()


def say(word: str) -> dict[str, str]:
    return {"backend": "TestSay", "word": word}


@hami.register
class TestAddSub(hami.Backend):
    """OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1; text stays text."""

    def forward(self, batch):
        for item in batch:
            first, second = item["INPUT0"], item["INPUT1"]
            if first.dtype == object:
                numbers = [np.vectorize(int, otypes=[np.int64])(each) for each in (first, second)]
                results = [np.vectorize(lambda n: str(n).encode(), otypes=[object])(each) for each in _both(*numbers)]
            else:
                results = list(_both(first, second))
            item["OUTPUT0"], item["OUTPUT1"] = results
            item["result"] = results[0]


def _both(first, second):
    return first + second, first - second


@hami.register
class TestRaises(hami.Backend):
    def forward(self, batch):
        raise ZeroDivisionError("in the backend")


class ServerInThread(HttpServer):
    capture_signals = contextlib.nullcontext  # which only the main thread can do


class Running:
    """A server on a free port, in a thread, and a client for it."""

    def __init__(
        self,
        source: object,
        *,
        allow_control: bool = False,
        shared_memory: bool = False,
        max_open: int | None = None,
        door: str = os.environ.get("HAMI_SERVE_TEST_DOOR", "native"),
        times: Times | None = None,
        cors: Collection[str] = (),
        tls: ssl.SSLContext | None = None,
        logs: bool = False,
        **options: object,
    ) -> None:
        self.serving = Serving(source, allow_control=allow_control, shared_memory=shared_memory, max_open=max_open)
        self._listening = listen("127.0.0.1", 0)
        self.port = self._listening.getsockname()[1]
        self.url = f"127.0.0.1:{self.port}"
        made = Direct(application(self.serving, **options))
        made = Cors(made, cors) if cors else made
        made = AccessLog(made) if logs else made
        native = None
        if door == "native":
            max_body = options.get("max_body", MAX_BODY)
            native = NativeDoor(self.serving, max_body, None, loopback=False, times=times, origins=cors)
        self._server = ServerInThread(made, self.serving, 30, native, times, tls)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        asyncio.run(self._server.serve([self._listening]))

    def stop(self) -> None:
        """Begin to stop, as on SIGTERM."""
        self.serving.drain(30)
        self._server.should_exit = True

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()

    def call(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None):
        """Return the status, the headers, and the body: parsed if it is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        connection.request(method, path, data, headers or {})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        is_json = answer.headers.get_content_type() == "application/json" and content
        return answer.status, answer.headers, json.loads(content) if is_json else content

    def get(self, path: str):
        status, _, content = self.call("GET", path)
        return status, content

    def post(self, path: str, body: object = None, headers: dict[str, str] | None = None):
        status, _, content = self.call("POST", path, body, headers)
        return status, content


DOOR = os.environ.get("HAMI_SERVE_TEST_DOOR", "native")


class RunningGrpc:
    """A gRPC server in a thread."""

    def __init__(
        self,
        source: object,
        *,
        allow_control: bool = False,
        shared_memory: bool = False,
        max_open: int | None = None,
        door: str = DOOR,
        times: Times | None = None,
        max_body: int = 1 << 20,
    ) -> None:
        self._door, self._times, self._max_body = door, times, max_body
        self.serving = Serving(source, allow_control=allow_control, shared_memory=shared_memory, max_open=max_open)
        self.serving.start()
        self._started: queue.Queue[object] = queue.Queue()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        self._loop, self._ended, self.port = self._started.get(timeout=60)
        self.url = f"127.0.0.1:{self.port}"

    async def _run(self) -> None:
        from hami_serve.grpc_server import GrpcServer  # which needs packages that may be absent

        ended, native, max_body = asyncio.Event(), None, self._max_body
        if self._door == "native":
            from hami_serve.native_grpc import NativeGrpc

            native = NativeDoor(self.serving, max_body, None, loopback=False, times=self._times)
            native.start(None, [])
            self.native, self.listening = native, listen("127.0.0.1", 0)
            server = NativeGrpc(native, self.serving, self.listening, max_body)
        else:
            server = GrpcServer(self.serving, "127.0.0.1:0", max_body)
        self._server = server
        await server.start()
        await self.serving.started()
        if native is not None:
            native.publish()
        self._started.put((asyncio.get_running_loop(), ended, server.port))
        await ended.wait()
        await server.stop(10)
        if native is not None:
            await native.close()

    def left_open(self) -> list[int]:
        """Return the connections of the native door, and the bytes of its open requests, if there are any."""
        budget = self.serving.budget
        found = [self._server.connections, budget.outside(), budget.used]
        return found if any(found) else []

    def wait_for_memory(self, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let calls wait so long for the memory of their messages."""
        monkeypatch.setattr("hami_serve.grpc_server.WAIT_S", seconds)
        if self._door == "native":
            self._server.wait_for_memory(seconds)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(60)
        self.serving.stop()


def io(datatype: str, shape: list[int], names: tuple[str, ...] = ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1")):
    specs = [{"name": name, "datatype": datatype, "shape": shape} for name in names]
    half = len(specs) // 2
    return {"inputs": specs[:half], "outputs": specs[half:]}


def models() -> dict[str, object]:
    """Models with the names and tensors that Triton's examples use, and some that fail."""
    return {
        "simple": {"source": "TestAddSub", **io("INT32", [1, 16])},
        "simple_int8": {"source": "TestAddSub", **io("INT8", [1, 16])},
        "simple_string": {"source": "TestAddSub", **io("BYTES", [1, 16])},
        "simple_identity": {"source": "Identity", **io("BYTES", [-1, -1], ("INPUT0", "OUTPUT0"))},
        "any": "Identity",
        "bf16": {"source": "Identity", **io("BF16", [-1], ("x", "y"))},
        "raises": "TestRaises",
        "picture": "TestFails",
        "say": say("hello"),
        "repeat_int32": {
            "source": "TestRepeat",
            "decoupled": True,
            "inputs": [
                {"name": "IN", "datatype": "INT32", "shape": [-1]},
                {"name": "DELAY", "datatype": "UINT32", "shape": [-1]},
                {"name": "WAIT", "datatype": "UINT32", "shape": [1]},
            ],
            "outputs": [
                {"name": "OUT", "datatype": "INT32", "shape": [1]},
                {"name": "IDX", "datatype": "UINT32", "shape": [1]},
            ],
        },
        "nothing": "TestNothing",
        "words": {"source": "TestWords", **io("BYTES", [1, 1], ("text_input", "text_output"))},
    }


@pytest.fixture(scope="session")
def server():
    running = Running(models())
    yield running
    running.close()


@pytest.fixture
def certificate(tmp_path):
    """The files of a certificate for 127.0.0.1 and of its private key."""
    if not shutil.which("openssl"):
        pytest.skip("needs openssl")
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key -out cert -days 2"
    subprocess.run([*make.split(), "-subj", "/CN=127.0.0.1"], cwd=tmp_path, check=True, capture_output=True)
    return str(tmp_path / "cert"), str(tmp_path / "key")


@pytest.fixture
def start():
    """start(source) starts a server, which ends with the test."""
    started: list[Running] = []

    def begin(source: object, **options: object) -> Running:
        started.append(Running(source, **options))
        return started[-1]

    yield begin
    for each in started:
        each.close()


@hami.register
class TestAccumulate(hami.Backend):
    """The sum of the inputs of a sequence so far."""

    def init(self, options):
        self.sums = {}

    def forward(self, batch):
        for item in batch:
            start = 0 if item["sequence_start"] else self.sums[item["req_id"]]
            total = start + int(item["data"][0])
            self.sums[item["req_id"]] = total
            if item["finish"]:
                del self.sums[item["req_id"]]
            item["result"] = np.array([total], np.int32)


@hami.register
class TestRepeat(hami.Backend):
    """A part for each element of IN, DELAY ms apart, then WAIT ms: repeat_int32 of Triton's examples."""

    def forward(self, batch):
        request = batch[0]
        pause = threading.Event()  # never set
        for index, (value, delay) in enumerate(zip(request["IN"], request["DELAY"], strict=True)):
            pause.wait(int(delay) / 1000)
            yield {"OUT": np.array([value], np.int32), "IDX": np.array([index], np.uint32)}
        pause.wait(int(request["WAIT"][0]) / 1000)


@hami.register
class TestWords(hami.Backend):
    """Delivers the words of a text, and then returns the text; the word "fail" is an error."""

    def forward(self, batch):
        for item in batch:
            for word in item["data"].decode().split():
                if word == "fail":
                    raise ValueError("this word is an error")
                item.emit(word)
            item["result"] = item["data"]


@hami.register
class TestNothing(hami.Backend):
    """Returns None, after a part for each byte of its text."""

    def forward(self, batch):
        for item in batch:
            for each in item["data"].encode():
                item.emit(each)
            item["result"] = None


class Flood:
    """How far the backend TestFlood has come."""

    def __init__(self) -> None:
        self.parts = 0
        self.ended = threading.Event()


FLOODS: dict[str, Flood] = {}


@hami.register
class TestFlood(hami.Backend):
    """Delivers parts of 64 KiB as fast as they are taken."""

    flood: str
    parts: int = 4096

    def forward(self, batch):
        flood = FLOODS[self.flood]
        try:
            for _ in range(self.parts):
                flood.parts += 1
                yield b"x" * (1 << 16)
        finally:
            flood.ended.set()


@hami.register
class TestMeeting(hami.Backend):
    """Answers when two requests have begun."""

    barrier = threading.Barrier(2)

    def forward(self, batch):
        self.barrier.wait(60)
        yield batch[0]["data"]


@hami.register
class TestWrites(hami.Backend):
    """Writes a pipeline to a file while it is made."""

    path: str

    def init(self, options):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write('[new]\nbackend = "Identity"\n')

    def forward(self, batch):
        for item in batch:
            item["result"] = item["data"]


@hami.register
class TestPlace(hami.Backend):
    """Whether the memory of the inputs is that of the request: they then lie behind one another."""

    def forward(self, batch):
        for item in batch:
            first, second = item["first"], item["second"]
            gap = second.ctypes.data - first.ctypes.data - first.nbytes
            item["result"] = [gap, first.ctypes.data % 64, int(first.sum()), int(second.sum())]
