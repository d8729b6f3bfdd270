"""Native threads call a pipe by hami/caller.h."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import HERE, SHARED, Toolchain

NO_LIMIT = 2**63 - 1
CANCELLED, INVALID_ARGUMENT, DEADLINE_EXCEEDED, UNAVAILABLE, REQUEST = 1, 3, 4, 14, 101

get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Program:
    """The native program of caller.c, with a caller of one pipe. A call of ctypes releases the GIL."""

    def __init__(self, library: Path, pipe: hami.Pipe) -> None:
        self._library = ctypes.CDLL(str(library))
        capsule = hami.native.caller(pipe)
        self._caller = ctypes.c_void_p(get_pointer(capsule, b"hami.caller.v1"))
        assert self._library.open_caller(self._caller) == 0

    def close(self) -> None:
        self._library.close_caller(self._caller)

    def call(self, number: int, timeout: float = NO_LIMIT) -> tuple[int, int]:
        """Return the code of the error, and the result."""
        result = ctypes.c_int64()
        code = self._library.call(self._caller, ctypes.c_int64(number), ctypes.c_int64(timeout), ctypes.byref(result))
        return code, result.value

    def record(self, visits: ctypes.Array[ctypes.c_int64]) -> int:
        return int(self._library.call_recorded(self._caller, visits))

    def release(self, value: ctypes.Array[ctypes.c_int64]) -> None:
        self._library.release_value(value)

    def run(self, name: str) -> int:
        function = self._library[name]
        function.restype = ctypes.c_int64 if name == "call_from_threads" else ctypes.c_int32
        return int(function(self._caller))


@pytest.fixture(scope="session")
def libraries() -> dict[str, Path]:
    return {}


@pytest.fixture
def program(toolchain: Toolchain, libraries: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    if toolchain.name not in libraries:
        library = tmp_path_factory.mktemp("caller") / f"caller_{toolchain.name}.so"
        toolchain.run(HERE / "plugins" / "caller.c", [*SHARED, "-pthread", "-o", str(library)])
        libraries[toolchain.name] = library
    opened: list[Program] = []

    def program(pipe: hami.Pipe) -> Program:
        opened.append(Program(libraries[toolchain.name], pipe))
        return opened[-1]

    yield program
    for each in opened:
        each.close()


@hami.register
class WaitForLeave(hami.Backend):
    """Returns when its test lets it."""

    leave = threading.Event()

    def forward(self, batch: hami.Batch) -> None:
        self.leave.wait(10)
        for item in batch:
            item["result"] = item["data"]


MakeProgram = Callable[[hami.Pipe], Program]


def test_requests_of_native_threads_get_their_own_answers(program: MakeProgram) -> None:
    with hami.pipe({"a": {"backend": "Identity", "max": 4, "next": "b"}, "b": {"backend": "Identity"}}) as pipe:
        assert program(pipe).run("call_from_threads") == 2000


def test_backends_in_python_answer_native_threads(program: MakeProgram) -> None:
    @hami.register
    class AddOneInPython(hami.Backend):
        def forward(self, batch: hami.Batch) -> None:
            for item in batch:
                item["result"] = item["data"] + 1

    with hami.pipe("AddOneInPython") as pipe:
        assert program(pipe).call(41) == (0, 42)
        assert hami.native.uses_python(pipe)


def test_the_error_of_a_request_has_its_code(program: MakeProgram) -> None:
    @hami.register
    class NoResult(hami.Backend):
        def forward(self, batch: hami.Batch) -> None:
            pass

    with hami.pipe("NoResult") as pipe:
        called = program(pipe)
        assert called.call(1) == (REQUEST, -1)
        assert called.run("call_wrongly") == -INVALID_ARGUMENT


def test_a_request_is_cancelled_or_expires_while_its_backend_runs(program: MakeProgram) -> None:
    WaitForLeave.leave.clear()
    with hami.pipe("WaitForLeave") as pipe:
        called = program(pipe)
        try:
            assert called.run("call_and_cancel") == CANCELLED
            assert called.call(1, timeout=1_000_000) == (DEADLINE_EXCEEDED, -1)
        finally:
            WaitForLeave.leave.set()
        assert called.call(7) == (0, 7)


def test_the_nodes_of_a_request_are_recorded_for_python(program: MakeProgram) -> None:
    with hami.pipe({"a": {"backend": "Sleep(2ms)", "next": "b"}, "b": {"backend": "Sleep(3ms)"}}) as pipe:
        visits = (ctypes.c_int64 * 2)()
        called = program(pipe)
        assert called.record(visits) == 0
        recorded = hami.native.value_of(ctypes.addressof(visits))
        called.release(visits)
        times = hami.observe.RequestTimes({"hami.visits": recorded})
        assert times.compute_s >= 0.005
        assert times.queue_s >= 0


def test_a_caller_follows_a_pipe_that_is_replaced(program: MakeProgram) -> None:
    with hami.pipe("Identity") as pipe:
        called = program(pipe)
        pipe.replace("S[Identity,Identity]")
        assert called.call(3) == (0, 3)


def test_a_caller_outlives_its_pipe(program: MakeProgram) -> None:
    pipe = hami.pipe("Identity")
    called = program(pipe)
    pipe.close()
    assert called.call(1)[0] == -UNAVAILABLE
    del pipe
    assert called.call(1)[0] == -UNAVAILABLE
