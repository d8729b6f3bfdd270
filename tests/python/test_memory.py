"""Memory ends: requests end with their usual outcome or with MemoryError, and the pipe serves the next one.

Each test runs a program of its own: memory that ends may take down the interpreter that runs it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from hami import _core
from running import run_script

# Courses of requests. A course returns when its requests have ended; `memory_is_back` lets allocations succeed again.
COURSES = """
import asyncio
import os
import sys

import hami

TIMEOUT = 60.0


@hami.register
class AddOne(hami.Backend):
    max = 8

    def forward(self, batch):
        for item in batch:
            item["result"] = item["data"] + 1


@hami.register
class AddOneAnywhere(AddOne):
    thread = "serialized"


@hami.register
class Fails(hami.Backend):
    max = 8

    def forward(self, batch):
        for item in batch:
            if item["data"] == 2:
                raise hami.RequestError("a text that needs memory, because it is long")
            item["result"] = item["data"] + 1


def of(*numbers):
    return [{"data": number, "a key that needs memory": "a"} for number in numbers]


def check(error):
    assert error is None or isinstance(error, (MemoryError, hami.RequestError)), repr(error)


def call(pipe, memory_is_back):
    try:
        pipe({"data": 1, "a key that needs memory": 1})
    except MemoryError:
        pass


def call_list(pipe, memory_is_back):
    try:
        pipe(of(1, 2, 3))
    except MemoryError:
        pass
    except hami.BatchError as failed:
        for _, error in failed.errors:
            check(error)


def submit(pipe, memory_is_back):
    futures = []
    for request in of(1, 2, 3):
        try:
            futures.append(pipe.submit(request, TIMEOUT))
        except MemoryError:
            pass
    for future in futures:
        try:
            check(future.exception(1.0))
        except (MemoryError, NotDone):  # a worker that has no memory to complete it waits for some
            memory_is_back()
            check(future.exception(TIMEOUT))


def cancel(pipe, memory_is_back):
    try:
        future = pipe.submit({"data": 1})
    except MemoryError:
        return
    try:
        future.cancel()
    except MemoryError:
        pass
    memory_is_back()
    try:
        check(future.exception(TIMEOUT))
    except hami_cancelled:
        pass


def event(pipe, memory_is_back):
    try:
        done = hami.Event()
        pipe({"data": 1, "event": done})
    except MemoryError:
        memory_is_back()
        return
    memory_is_back()
    assert done.wait(TIMEOUT)
    check(done.exception())


def tasks(pipe, memory_is_back):
    async def one(request):
        try:
            await pipe.acall(request, TIMEOUT)
        except Exception as error:
            check(error)

    async def main():
        await asyncio.wait_for(asyncio.gather(*(one(request) for request in of(1, 2, 3))), TIMEOUT)

    loop.run_until_complete(main())


from concurrent.futures import CancelledError as hami_cancelled, TimeoutError as NotDone

loop = asyncio.new_event_loop()
NODES = {
    "own": {"backend": "AddOne"},
    "any": {"backend": "AddOneAnywhere", "instance_num": 2},
    "inline": {"backend": "Identity"},
    "retry": {"backend": "Fails"},
    "native": {"backend": "S[Identity,AddOne,HasKey(data)[Identity]]"},
}


def warm_up(course, pipe):
    for _ in range(2):
        course(pipe, lambda: None)
"""

EACH_ALLOCATION = """
from hami import _core

course, on = globals()[sys.argv[1]], sys.argv[2] == "on"
for node in NODES.values():
    with hami.pipe({"n": node}) as pipe:
        warm_up(course, pipe)
    for number in range(1, 5000):
        pipe = hami.pipe({"n": node})
        failed = []
        def memory_is_back():
            failed.append(_core._fail_allocations(0, False))
        _core._fail_allocations(number, on)
        course(pipe, memory_is_back)
        memory_is_back()
        assert pipe({"data": 1})["result"] in (1, 2), number
        pipe.close()
        if not any(failed):
            break
    else:
        sys.exit("the course does not end")
print("done")
"""

# Each course, and a flood of requests that uses up the memory, in an address space that may grow by `headroom` bytes.
# `fill` takes all of these but about `left`.
UNDER_A_LIMIT = """
import contextlib
import resource

NO_MEMORY = (MemoryError, SystemError)  # before 3.12, CPython reports so that it has none for the frame of a call


def size():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


def fill(left):
    blocks, block = [], 1 << 20
    while block >= 1 << 10:
        try:
            blocks.append(bytearray(block))
        except MemoryError:
            block >>= 1
    while blocks and left > 0:
        left -= len(blocks.pop())
    return blocks


def flood(pipe, memory_is_back):
    futures = []
    try:
        while len(futures) < 5000:
            futures.append(pipe.submit({"data": 1, "payload": bytes(4000)}, TIMEOUT))
    except NO_MEMORY:
        pass
    memory_is_back()
    for future in futures:
        check(future.exception(TIMEOUT))


def tasks_until_memory_is_back(pipe, memory_is_back):
    loop.call_later(0.05, memory_is_back)  # without memory asyncio cannot wake up
    tasks(pipe, memory_is_back)


headroom = int(sys.argv[1])
unlimited = resource.getrlimit(resource.RLIMIT_AS)
blocks = []


def memory_is_back():
    resource.setrlimit(resource.RLIMIT_AS, unlimited)
    blocks.clear()


for node in NODES.values():
    for course in (call, call_list, submit, cancel, event, tasks_until_memory_is_back, flood):
        for left in (0, 1 << 12, 1 << 16, headroom):
            pipe = hami.pipe({"n": node})
            warm_up(call, pipe)
            resource.setrlimit(resource.RLIMIT_AS, (size() + headroom, unlimited[1]))
            with contextlib.suppress(*NO_MEMORY):  # of the program itself
                if left < headroom:
                    blocks = fill(left)
                course(pipe, memory_is_back)
            memory_is_back()
            assert pipe({"data": 1})["result"] in (1, 2)
            pipe.close()
print("done")
"""

NO_STACK = """
import resource

with open("/proc/self/statm") as statm:
    size = int(statm.read().split()[0]) * resource.getpagesize()
unlimited = resource.getrlimit(resource.RLIMIT_AS)
with hami.pipe({"n": NODES["any"]}) as pipe:
    resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 20), unlimited[1]))
    error = pipe.submit({"data": 1}).exception(TIMEOUT)
    resource.setrlimit(resource.RLIMIT_AS, unlimited)
    assert isinstance(error, MemoryError), repr(error)
    print(error)
    assert pipe.submit({"data": 1}).result(TIMEOUT)["result"] == 2
"""

METHODS_OF_A_FUTURE = """
import threading

import _testcapi


def without_memory(method):
    for number in range(50):
        _testcapi.set_nomemory(number, 0)
        try:
            method()
        except MemoryError:
            pass
        finally:
            _testcapi.remove_mem_hooks()


with hami.pipe({"n": NODES["own"]}) as pipe:
    future = pipe.submit({"data": 1})
    future.result(TIMEOUT)
    for method in (future.done, future.cancelled, future.exception, future.cancel):
        without_memory(method)
    answers = []
    other = threading.Thread(target=lambda: answers.append(future.result()), daemon=True)
    other.start()
    other.join(TIMEOUT)
    print(answers[0]["result"] if answers else "the other thread waits without end")
"""


def run(program: str, *arguments: str) -> str:
    ended = run_script(program, *arguments, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize("course", ["call", "call_list", "submit", "cancel", "event", "tasks"])
@pytest.mark.parametrize("extent", ["once", "on"])
@pytest.mark.skipif(not hasattr(_core, "_fail_allocations"), reason="only a development build can let allocations fail")
def test_a_request_ends_once_wherever_memory_ends_in_the_core(course: str, extent: str) -> None:
    assert run(COURSES + EACH_ALLOCATION, course, extent) == "done\n"


@pytest.mark.parametrize("headroom", [1 << 19, 1 << 21, 1 << 23])
def test_a_request_ends_once_under_a_memory_limit(
    headroom: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))  # what a call imports is compiled under the limit
    assert run(COURSES + UNDER_A_LIMIT, str(headroom)) == "done\n"


@pytest.mark.skipif(not find_spec("_testcapi"), reason="this Python cannot let its allocations fail")
def test_others_can_wait_for_a_future_whose_methods_lacked_memory() -> None:
    assert run(COURSES + METHODS_OF_A_FUTURE) == "2\n"


def test_without_memory_for_the_stack_of_a_thread_a_request_fails_with_memory_error() -> None:
    said = run(COURSES + NO_STACK)
    assert said.startswith("cannot start a thread: no memory for its stack of ")
    assert "free memory, raise the limit (ulimit -v), or make stacks smaller (ulimit -s)" in said


@pytest.mark.parametrize(
    "call",
    [
        "[pipe.submit({'data': 1}, timeout=60) for _ in range(9)][-1].result(60)",
        "pipe({'data': 1}, timeout=60)",
        "asyncio.run(ask())",
    ],
    ids=["submit", "call", "acall"],
)
def test_threads_start_while_tracemalloc_traces(call: str) -> None:
    code = (
        "import asyncio\nimport hami\nimport tracemalloc\n\ntracemalloc.start()\n\n\n@hami.register\n"
        "class Ten(hami.Backend):\n    def forward(self, batch):\n"
        "        for item in batch:\n            item['result'] = 10\n\n\n"
        "async def ask():\n    return await pipe.acall({'data': 1}, timeout=60)\n\n\n"
        f"with hami.pipe({{'backend': 'Ten', 'instance_num': 2}}) as pipe:\n    assert ({call})['result'] == 10\n"
    )
    done = run_script(code)
    assert done.returncode == 0, done.stderr
