"""Each pair of what requests and clients do with regions of shared memory at the same time, and forks meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import hami
import pytest
from together import pairs, run_forked, run_together

from hami_serve import http_body, metrics
from hami_serve.errors import BadRequest
from hami_serve.shared_memory import OFFSET, REGION, SIZE, Memory, Regions

SIZE_OF_REGION = 4096
PATTERN = bytes(range(256)) * (SIZE_OF_REGION // 256)


class World:
    """A server with one region of an object of shared memory, which clients change meanwhile."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.regions = Regions(enabled=True)
        self.register("first")

    def register(self, name: str) -> None:
        self.regions.register(name, f"/{self.file.name}", 0, SIZE_OF_REGION)

    def parameters(self) -> dict[str, object]:
        return {REGION: "first", OFFSET: 256, SIZE: 256}

    def read(self) -> None:
        assert Memory(self.regions).read("x", "FP32", self.parameters()) == PATTERN[256:512]

    def write(self) -> None:
        self.regions.place("x", self.parameters()).write("x", PATTERN[256:512])

    def status(self) -> None:
        for found in self.regions.status(None):
            assert found["byte_size"] == SIZE_OF_REGION


CALLS: dict[str, Callable[[World], object]] = {
    "register": lambda world: world.register("other"),
    "register again": lambda world: world.register("first"),
    "unregister": lambda world: world.regions.unregister("first"),
    "unregister all": lambda world: world.regions.unregister(None),
    "status": World.status,
    "status of one": lambda world: world.regions.status("first"),
    "read": World.read,
    "write": World.write,
    "remove the object": lambda world: world.file.unlink(missing_ok=True),
    "shrink the object": lambda world: os.truncate(world.file, 300),
    "close": lambda world: world.regions.close(),
}
MAY_FAIL = (BadRequest, hami.NotFound, FileNotFoundError)


@pytest.fixture
def world() -> Iterator[World]:
    file = Path("/dev/shm") / f"hami-test-{uuid.uuid4().hex}"
    file.write_bytes(PATTERN)
    try:
        yield World(file)
    finally:
        file.unlink(missing_ok=True)


def descriptors_of(file: Path) -> int:
    found = 0
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{each}").startswith(str(file))
    return found


@pytest.mark.parametrize(("first", "second"), pairs(CALLS))
def test_two_calls_for_regions_at_once(world: World, first: str, second: str) -> None:
    changes = {"register", "register again", "unregister", "unregister all", "close"}
    allowed = MAY_FAIL if {first, second} - {"status", "read", "write", "status of one"} else ()
    run_together([lambda name=name: CALLS[name](world) for name in (first, second)] * 2, allowed)  # type: ignore[misc]
    assert descriptors_of(world.file) == len(world.regions.status(None))
    if not {first, second} & (changes | {"remove the object", "shrink the object"}):
        world.read()
    elif "shrink the object" in (first, second):
        assert not world.file.exists() or world.file.stat().st_size <= 512
    world.regions.close()
    gc.collect()
    assert descriptors_of(world.file) == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a process with threads forks
def test_a_forked_process_converts_bodies_though_the_threads_of_its_parent_are_not_there():
    def convert() -> None:
        assert asyncio.run(http_body.off_loop(len, b"abc")) == 3

    both = threading.Barrier(http_body.THREADS)
    for waiting in [http_body._threads.submit(both.wait) for _ in range(http_body.THREADS)]:
        waiting.result()
    run_forked(convert)
    convert()


def test_a_forked_process_counts_answers_of_its_own():
    def count() -> None:
        metrics.answers.count("HTTP", 200)
        assert [sample.value for sample in metrics.answers.family().samples] == [1]

    metrics.answers.count("HTTP", 200)
    with metrics.answers._lock:  # as if a thread was forked there
        run_forked(count)
