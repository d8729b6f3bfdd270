"""Plugins that misbehave: the caller gets an error, and the core and other plugins continue."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import HERE, Toolchain


@pytest.mark.parametrize(
    ("what", "raised", "text"),
    [
        ("int", hami.Error, "an exception that does not derive from std::exception"),
        ("bad_alloc", MemoryError, "out of memory"),
        ("exception", hami.Error, "no luck"),
        ("long", hami.Error, "x" * 2**20),
        ("empty", hami.Error, "an error with code 13 and no text"),
        ("binary", hami.Error, "\\xff"),
        ("code", hami.Error, "a code of its own"),
        ("type", hami.DataTypeError, "expected a tensor, got int"),
        ("key", hami.RequestError, "the request has no `nothing`"),
        ("final", hami.NotFound, "gone"),
        ("nothing", hami.NoResult, "the pipeline left no `result`"),
    ],
)
def test_an_exception_of_a_plugin_is_raised_in_python(
    hostile: str, what: str, raised: type[Exception], text: str
) -> None:
    with hami.pipe(f"{hostile}Throws(what={what})") as pipe:
        for _ in range(2):
            with pytest.raises(raised) as caught:
                pipe({"data": 1})
            assert type(caught.value) is raised
            assert str(caught.value).splitlines()[0] == text


LATER = "a value of kind 9 cannot be converted to Python: its plugin needs a newer hami-core"


@pytest.mark.parametrize(
    ("what", "raised", "text"),
    [
        ("kind", hami.DataTypeError, LATER),
        ("inside", hami.DataTypeError, LATER),
        ("key", ValueError, 'a key must be UTF-8, got "\\xff" with an invalid byte at offset 0'),
        ("type key", ValueError, 'a type key must be UTF-8, got "\\xff" with an invalid byte at offset 0'),
        ("length", ValueError, f"a length of {2**64 - 1} is larger than the address space"),
        ("number", ValueError, f"an int is at most {2**63 - 1}, got {2**64 - 1}"),
        ("memory", MemoryError, "out of memory"),
    ],
)
def test_a_value_that_python_cannot_represent_fails_its_request(
    hostile: str, what: str, raised: type[Exception], text: str
) -> None:
    with hami.pipe({"backend": f"{hostile}Odd", "what": what}) as pipe:
        for call in (pipe, lambda request: pipe.submit(request).result(60)):
            with pytest.raises(raised) as caught:
                call({"data": 1})
            assert type(caught.value) is raised
            assert str(caught.value).splitlines()[0] == text


TOO_DEEP = (
    "lists and dicts nest at most 1000 levels deep, got a deeper one or one that contains itself; flatten it, "
    "or pass it as text or bytes"
)


def nested(times: int, dicts: bool) -> Any:
    value: Any = 7
    for _ in range(times):
        value = {"in": value} if dicts else [value]
    return value


def depth_of(value: Any) -> int:
    """Return the depth of the 7 inside lists and dicts; == would recurse."""
    depth = 0
    while value != 7:
        (value,) = value.values() if isinstance(value, dict) else value
        depth += 1
    return depth


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("dicts", [False, True])
def test_a_value_of_the_maximum_depth_is_converted_in_both_directions(hostile: str, dicts: bool) -> None:
    with hami.pipe({"backend": f"{hostile}Deep", "dicts": dicts, "times": 1000}) as pipe:
        assert depth_of(pipe({"data": 7})["result"]) == 1000
    given = nested(1000, dicts)
    with hami.pipe(f"{hostile}Deep") as pipe:
        result = pipe({"data": given})["result"]
    assert result is not given
    assert depth_of(result) == 1000


@pytest.mark.parametrize(
    "data", [nested(200_000, False), nested(200_000, True), cyclic()], ids=["lists", "dicts", "cycle"]
)
def test_a_value_that_is_nested_too_deeply_fails_only_its_request(hostile: str, data: Any) -> None:
    with hami.pipe(f"{hostile}Deep") as pipe:
        with pytest.raises(hami.DataTypeError) as caught:
            pipe({"data": data})
        assert str(caught.value).splitlines()[0] == TOO_DEEP
        assert pipe({"data": [1]})["result"] == [1]


@pytest.mark.parametrize("dicts", [False, True])
def test_a_value_that_a_plugin_nests_too_deeply_fails_its_request(hostile: str, dicts: bool) -> None:
    with hami.pipe({"backend": f"{hostile}Deep", "dicts": dicts, "times": 200_000}) as pipe:
        for _ in range(2):
            with pytest.raises(hami.DataTypeError) as caught:
                pipe({"data": 1})
            assert str(caught.value).splitlines()[0] == TOO_DEEP


def test_a_value_that_only_python_reads_may_be_nested_to_any_depth() -> None:
    data = nested(200_000, False)
    with hami.pipe("Identity") as pipe:
        assert pipe({"data": data})["result"] is data


def test_a_counter_whose_name_is_not_utf8_does_not_break_the_statistics(hostile: str) -> None:
    with hami.pipe(f"{hostile}Odd(what=counter)") as pipe:
        assert pipe({"data": 1})["result"] is True
        assert "'\\\\xff': 2" in str(pipe.stats())


def test_a_python_exception_that_a_plugin_leaves_set_is_reported_as_unraisable(
    hostile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", left.append)
    with hami.pipe(f"{hostile}LeavesException") as pipe:
        assert pipe({"data": 1})["result"] == 1
        assert pipe.submit({"data": 2}).result(60)["result"] == 2
        with pytest.raises(hami.RequestError, match="a negative number"):
            pipe.submit({"data": -1}).result(60)
    assert [repr(one.exc_value) for one in left] == ["KeyError('left')"] * 4
    assert {one.object for one in left} == {f"hami: exception left set by the native backend {hostile}LeavesException"}


def test_an_exception_in_init_fails_the_build(hostile: str) -> None:
    with pytest.raises(hami.Error, match=r"\Ano luck"):
        hami.pipe(f"{hostile}Throws(what=init)")


def test_requests_of_a_failed_native_batch_are_retried_one_by_one(hostile: str) -> None:
    with hami.pipe(f"{hostile}FailsTogether") as pipe, pytest.raises(hami.BatchError) as caught:
        pipe([{"data": 1}, {"data": -1}, {"data": 2}])
    assert [(index, str(error).splitlines()[0]) for index, error in caught.value.errors] == [(1, "a negative number")]


def test_python_objects_may_be_released_on_any_thread(hostile: str) -> None:
    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)
    with hami.pipe(f"{hostile}Keeps") as pipe:
        assert pipe({"data": thing})["result"] == 1
        assert gone() is thing
    del thing
    while gone() is not None:  # the next thread that holds the GIL releases it
        pass


def test_a_dedicated_child_cannot_be_called_on_another_thread(hostile: str) -> None:
    @hami.register
    class AbiOwn(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            raise AssertionError("it was called")

    with hami.pipe(f"{hostile}Elsewhere[AbiOwn]") as pipe, pytest.raises(ValueError, match="AbiOwn") as caught:
        pipe({"data": 1})
    assert str(caught.value).splitlines()[0] == (
        "AbiOwn has a dedicated thread and was called on another one; call it only during the plugin's own create and "
        "forward, on the thread of that call"
    )


AT_EXIT = """
import sys
import hami
(name, *_) = hami.native.register_plugin(sys.argv[1])
pipe = hami.pipe(name + "(what=nothing)")
requests = [pipe.submit({"data": 1}) for _ in range(500)]
"""


def test_the_interpreter_may_exit_with_requests_in_flight(toolchain: Toolchain, build: Callable[..., Path]) -> None:
    library = build(toolchain, HERE / "plugins" / "hostile.cpp")
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT, str(library)], capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert (done.returncode, done.stderr) == (0, "")


STUCK = """
import sys
import warnings
import hami
names = hami.native.register_plugin(sys.argv[1])
prefix = sys.argv[2]
stuck = hami.pipe(f"{prefix}Stuck(where={sys.argv[3]})")
future = stuck.submit({"data": 1})
if sys.argv[3] == "close":
    print(future.result()["result"])
else:
    while not stuck.stats()["default"].running:
        pass
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    stuck.close(timeout=0.01)
print(*(one.message for one in caught))
with hami.pipe(f"{prefix}FailsTogether") as pipe:
    print(pipe({"data": 1})["result"])
print(hami.pipe("S[Identity]")({"data": "other plugins and the core continue"})["result"])
"""


@pytest.mark.parametrize("where", ["close", "forward"])
def test_a_stuck_backend_is_named_and_abandoned(toolchain: Toolchain, build: Callable[..., Path], where: str) -> None:
    library = build(toolchain, HERE / "plugins" / "hostile.cpp")
    prefix = toolchain.prefix
    done = subprocess.run(
        [sys.executable, "-c", STUCK, str(library), prefix, where], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.sub(r"within \d+\.\d s", "within TIME", done.stdout).splitlines() == [
        *(["close"] if where == "close" else []),
        f'these backends did not return within TIME and were abandoned: {prefix}Stuck of node "default"',
        "1",
        "other plugins and the core continue",
    ]


LEAVES_THREADS = """
import sys
import hami
hami.native.register_plugin(sys.argv[1])
with hami.pipe(sys.argv[2]) as pipe:
    for data in (1, "text", [1, 2], object()):
        print(pipe({"data": data})["result"])
print(hami.pipe("Identity")({"data": "the core continues"})["result"])
"""


def test_a_plugin_may_leave_running_threads_that_use_the_core(toolchain: Toolchain, build: Callable[..., Path]) -> None:
    library = build(toolchain, HERE / "plugins" / "hostile.cpp")
    command = [sys.executable, "-c", LEAVES_THREADS, str(library), f"{toolchain.prefix}LeavesThreads"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [*["True"] * 4, "the core continues"]
