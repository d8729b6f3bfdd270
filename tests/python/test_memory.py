"""Memory ends: requests end with their usual outcome or with MemoryError, and the pipe serves the next one.

Each test runs a program of its own: memory that ends may take down the interpreter that runs it.
"""

from __future__ import annotations

import pytest
from running import run_script

from hami import _core

# What can happen to a request, each with its own memory. A course returns when its requests have ended; `memory_is_back`
# lets allocations succeed again.
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
            check(future.exception(TIMEOUT))
        except MemoryError:  # the future is not done
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
    done = hami.Event()
    try:
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


from concurrent.futures import CancelledError as hami_cancelled

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

courses = pytest.mark.parametrize("course", ["call", "call_list", "submit", "cancel", "event", "tasks"])


def run(program: str, *arguments: str) -> str:
    ended = run_script(program, *arguments, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@courses
@pytest.mark.parametrize("extent", ["once", "on"])
@pytest.mark.skipif(not hasattr(_core, "_fail_allocations"), reason="only a development build can let allocations fail")
def test_a_request_ends_once_wherever_memory_ends_in_the_core(course: str, extent: str) -> None:
    assert run(COURSES + EACH_ALLOCATION, course, extent) == "done\n"
