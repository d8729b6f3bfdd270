"""Plugins that misbehave: the core lives, the caller is told, the others go on."""

from __future__ import annotations

import os
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
        ("int", hami.Error, "an exception that is no std::exception"),
        ("bad_alloc", MemoryError, "out of memory"),
        ("exception", hami.Error, "no luck"),
        ("long", hami.Error, "x" * 2**20),
        ("empty", hami.Error, "an error of code 13, without a text"),
        ("binary", hami.Error, "\\xff"),
        ("code", hami.Error, "a code of its own"),
        ("type", hami.DataTypeError, "expected a tensor, got int"),
        ("key", hami.RequestError, "the request has no `nothing`"),
        ("final", hami.NotFound, "gone"),
        ("nothing", hami.NoResult, "the pipeline left no `result`"),
    ],
)
def test_what_it_throws_is_the_outcome(hostile: str, what: str, raised: type[Exception], text: str) -> None:
    with hami.pipe(f"{hostile}Throws(what={what})") as pipe:
        for _ in range(2):
            with pytest.raises(raised) as caught:
                pipe({"data": 1})
            assert type(caught.value) is raised
            assert str(caught.value).splitlines()[0] == text


def test_what_init_throws_fails_the_build(hostile: str) -> None:
    with pytest.raises(hami.Error, match=r"\Ano luck"):
        hami.pipe(f"{hostile}Throws(what=init)")


def test_a_spoilt_batch_is_tried_again_one_by_one(hostile: str) -> None:
    with hami.pipe(f"{hostile}Spoilt") as pipe, pytest.raises(hami.BatchError) as caught:
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
    while gone() is not None:  # whoever has the global lock next lets it go
        pass


def test_a_child_is_not_called_on_a_foreign_thread(hostile: str) -> None:
    @hami.register
    class AbiOwn(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            raise AssertionError("it was called")

    with hami.pipe(f"{hostile}Elsewhere[AbiOwn]") as pipe, pytest.raises(ValueError, match="AbiOwn") as caught:
        pipe({"data": 1})
    assert str(caught.value).splitlines()[0] == "AbiOwn runs on one thread only, and was called on another"


AT_EXIT = """
import sys
import hami
(name, *_) = hami.register_plugin(sys.argv[1])
pipe = hami.pipe(name + "(what=nothing)")
requests = [pipe.submit({"data": 1}) for _ in range(500)]
"""


def test_interpreter_may_end_with_requests_in_flight(toolchain: Toolchain, build: Callable[..., Path]) -> None:
    library = build(toolchain, HERE / "plugins" / "hostile.cpp")
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT, str(library)], capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert (done.returncode, done.stderr) == (0, "")
