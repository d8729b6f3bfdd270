"""Every two methods of Serving, Watcher and Peers at the same time, and every wait cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import hami
import pytest
from counted_models import Loaded, wait_released
from together import LONG_S, Cancelled, pairs, run_together

from hami_serve import ModelUnavailable
from hami_serve.peers import Peers
from hami_serve.serving import Serving
from hami_serve.watching import Watcher

NAMES = ("a", "b", "c")


class World:
    """A folder of models, what serves it, and what watches it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "models"
        self.folder.mkdir()
        self.loaded = Loaded()
        for name in NAMES:
            self.write(name, name)
        self.peers = Peers(folder, 1, 0)
        self.serving = Serving(self.folder, allow_control=True, peers=self.peers, drain_timeout=LONG_S)
        self.watcher = Watcher(self.serving, self.folder)
        self._words = itertools.count()
        self._listens = threading.Lock()  # a worker listens once

    def write(self, name: str, word: str) -> None:
        """Replace a file in one step, as editors do."""
        new = self.folder / f"{name}.{word}"
        new.write_text(f'[{name}]\nbackend = "TestCounted"\nword = "{word}"\ncounter = "{self.loaded.key}"\n')
        new.replace(self.folder / f"{name}.toml")

    def change(self) -> None:
        self.write("c", str(next(self._words)))
        self.watcher.look()

    def watch(self) -> None:
        with Watcher(self.serving, self.folder):
            pass

    async def infer(self) -> None:
        await self.serving.started_for_request()
        assert (await self.serving.rounder.acall("a", {"data": 1}))["result"] == "a"

    async def answer(self) -> None:
        with self._listens:
            async with self.serving.answering_peers():
                pass

    async def ask(self) -> None:
        await self.peers.ask("metrics")

    async def statistics(self) -> None:
        await self.serving.statistics(self.serving.rounder.registry.models() if self.serving.loaded else [])

    def look(self) -> None:
        _ = self.serving.ready, self.serving.begun, self.serving.draining, self.serving.drain_left()
        assert set(self.serving.loading()) <= set(NAMES)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.serving.stop()
    made.loaded.wait(0)


WAITS: dict[str, Callable[[World], object]] = {
    "started": lambda world: world.serving.started(),
    "infer": World.infer,
    "load": lambda world: world.serving.load("b"),
    "unload": lambda world: world.serving.unload("b"),
    "metrics": lambda world: world.serving.metrics(),
    "statistics": World.statistics,
    "answering_peers": World.answer,
    "ask": World.ask,
}
CALLS: dict[str, Callable[[World], object]] = {
    "start": lambda world: world.serving.start(),
    "look": World.look,
    "reload": lambda world: [each.result(LONG_S) for each in world.serving.reload().values()],
    "watcher.look": World.change,
    "watch": World.watch,
    "stop": lambda world: world.serving.stop(),
    **{
        name: lambda world, wait=wait: asyncio.run(wait(world))  # type: ignore[arg-type]
        for name, wait in WAITS.items()
    },
}


def check(world: World) -> None:
    """Check that every model is loaded once and answers."""
    world.serving.start()
    asyncio.run(world.serving.load("b"))
    for name in NAMES:
        assert world.serving.rounder.infer({"data": 1}, [name])[name]["result"]
    wait_released(world.serving.rounder)
    world.loaded.wait(len(NAMES))


@pytest.mark.parametrize("cold", [False, True], ids=["loaded", "cold"])
@pytest.mark.parametrize(("first", "second"), pairs(CALLS))
def test_two_calls_at_once_leave_every_model_usable(world, first, second, cold, caplog):
    allowed: tuple[type[BaseException], ...] = ()
    if "stop" in (first, second):
        allowed += (hami.PipeClosed, ModelUnavailable)
    if cold:  # a call for the models may come before them
        allowed += (hami.PipeClosed,)
    else:
        world.serving.start()
    with caplog.at_level(logging.ERROR):
        run_together([lambda name=name: CALLS[name](world) for name in (first, second)], allowed)
    if "stop" not in (first, second):
        assert caplog.records == []
        check(world)


@pytest.mark.parametrize(
    ("name", "cold"),
    [(name, cold) for name in WAITS for cold in (False, True) if not (cold and name in ("load", "unload"))],
)
def test_a_caller_that_leaves_at_any_wait_leaves_every_model_usable(name, cold, tmp_path, caplog):
    for number in itertools.count():
        (tmp_path / str(number)).mkdir()
        world = World(tmp_path / str(number))
        if not cold:
            world.serving.start()

        async def leave(world: World = world, number: int = number) -> bool:
            async with listening(world):
                try:
                    await Cancelled(WAITS[name](world), number)
                except asyncio.CancelledError:
                    return True
                return False

        left = asyncio.run(leave())
        check(world)
        world.serving.stop()
        world.loaded.wait(0)
        if not left:
            break
    assert caplog.records == []


@contextlib.asynccontextmanager
async def listening(world: World) -> AsyncIterator[None]:
    async with world.serving.answering_peers():
        yield


def test_a_worker_that_still_loads_is_left_out_of_sums_without_a_word(tmp_path, caplog):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "a.toml").write_text('[a]\nbackend = "Identity"\n')
    servings = [Serving(folder, peers=Peers(tmp_path, 2, number)) for number in range(2)]
    servings[0].start()

    async def main() -> list[dict[str, object]]:
        async with servings[0].answering_peers(), servings[1].answering_peers():
            models = servings[0].rounder.registry.models()
            assert b"hami_serve_model_ready" in await servings[0].metrics()
            return await servings[0].statistics(models)

    (statistics,) = asyncio.run(main())
    assert statistics["name"] == "a"
    assert caplog.records == []
    servings[0].stop()


def test_workers_find_each_other_in_a_folder_with_a_long_name(tmp_path):
    """The address of a Unix socket has at most 107 bytes, and TMPDIR may be longer."""
    folder = tmp_path / ("a" * 120)
    folder.mkdir()
    peers = [Peers(folder, 2, number) for number in range(2)]

    async def main() -> None:
        async with await peers[0].listen({"metrics": lambda: 0}), await peers[1].listen({"metrics": lambda: 1}):
            assert await peers[0].ask("metrics") == {0: 0, 1: 1}

    asyncio.run(main())
    for each in peers:
        os.close(each._descriptor)


def test_a_peer_that_asks_nothing_does_not_hold_the_end(tmp_path):
    peers = Peers(tmp_path, 1, 0)

    async def main() -> None:
        server = await peers.listen({"metrics": lambda: []})
        async with server:
            with socket.socket(socket.AF_UNIX) as silent:
                silent.connect(str(tmp_path / "0"))
                assert await peers.ask("metrics") == {0: []}
                server.close()
                await asyncio.wait_for(server.wait_closed(), LONG_S)

    asyncio.run(main())
