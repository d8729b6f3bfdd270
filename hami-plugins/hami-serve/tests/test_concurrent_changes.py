"""Every two methods of an AllRounder at the same time, and every wait of a request cancelled: no request is lost.

At the end no request is counted, no model is between two states, and the models that are loaded keep the limit.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
from collections.abc import Callable

import hami
import pytest
from counted_models import Loaded, wait_released
from together import LONG_S, is_cancelled, pairs, run_together

from hami_serve import AllRounder, ModelUnavailable, State
from hami_serve.threads import Outcome, Threads

LIMIT = 2


class Counted(AllRounder):
    """One whose instances are counted, and whose models can be replaced by others that are counted too."""

    def __init__(self) -> None:
        self.loaded = Loaded()
        super().__init__(self.source(), max_loaded=LIMIT, drain_timeout=LONG_S)

    def source(self) -> dict[str, object]:
        versions = {key: self.loaded.component("b")["source"] for key in ("1", "2")}
        split = {"versions": versions, "weights": {"1": 1, "2": 1}}
        return {"a": self.loaded.component("a"), "b": split, "c": self.loaded.component("c")}


async def parts(rounder: AllRounder) -> list[object]:
    return [part async for part in rounder.astream("b", {"data": 1})]


REQUESTS: dict[str, Callable[[AllRounder], object]] = {
    "infer": lambda rounder: rounder.infer({"data": 1}, ["a"]),
    "infer in all": lambda rounder: rounder.infer({"data": 1}),
    "submit_request": lambda rounder: rounder.submit_request("b", {"data": 1}).result(LONG_S),
    "acall": lambda rounder: asyncio.run(rounder.acall("c", {"data": 1})),
    "astream": lambda rounder: asyncio.run(parts(rounder)),
}
CHANGES: dict[str, Callable[[Counted], object]] = {
    "submit": lambda rounder: rounder.submit("a", rounder.loaded.component("a")),
    "update": lambda rounder: rounder.update({**rounder.source(), "d": rounder.loaded.component("d")}),
    "apply": lambda rounder: rounder.apply("b", rounder.source()["b"], build=True),
    "load": lambda rounder: rounder.load("b"),
    "route": lambda rounder: rounder.route("a", aliases=["alias"]),
    "move": lambda rounder: rounder["a"].to("cpu"),
}
ENDS: dict[str, Callable[[AllRounder], object]] = {  # after which a request may not be answered
    "unload": lambda rounder: rounder.unload("a"),
    "remove": lambda rounder: rounder.remove("b"),
    "close": lambda rounder: rounder.close(),
}
METHODS = {**REQUESTS, **CHANGES, **ENDS}


def check(rounder: Counted) -> None:
    wait_released(rounder)
    models = rounder.models()
    assert {model.state for model in models} <= {State.READY, State.UNLOADED}
    ready = sum(model.state is State.READY for model in models)
    rounder.loaded.wait(ready)  # a load whose model was replaced meanwhile may last
    assert ready <= LIMIT


@pytest.mark.parametrize(("first", "second"), pairs(METHODS))
def test_two_methods_at_once_lose_no_request_and_keep_the_limit(first, second):
    allowed = (hami.NotFound, ModelUnavailable, hami.PipeClosed) if {first, second} & ENDS.keys() else ()
    allowed += (hami.ConfigError,) if "move" in (first, second) else ()  # an unloaded model has no device yet
    rounder = Counted()
    run_together([lambda name=name: METHODS[name](rounder) for name in (first, second)], allowed)
    check(rounder)
    rounder.close()
    rounder.loaded.wait(0)


@pytest.mark.parametrize("request_of", ["acall", "astream"])
@pytest.mark.parametrize("cold", [False, True])
def test_a_request_that_is_cancelled_at_any_wait_is_not_counted_any_more(request_of, cold):
    loaded = Loaded()

    async def ask(rounder: AllRounder) -> None:
        if request_of == "acall":
            await rounder.acall("a", {"data": 1})
        else:
            async for _ in rounder.astream("a", {"data": 1}):
                pass

    source = {name: loaded.component(name) for name in ("a", "b")}
    for number in itertools.count():
        with AllRounder(source, max_loaded=1, drain_timeout=LONG_S) as rounder:
            rounder.infer({"data": 1}, ["b" if cold else "a"])
            ended = not is_cancelled(ask(rounder), number)
            rounder.infer({"data": 1}, ["b"])  # which unloads the other: nothing is counted there
            rounder.infer({"data": 1}, ["a"])
            wait_released(rounder)
        if ended:
            break
    assert number >= 1
    loaded.wait(0)


def test_functions_with_the_same_key_run_one_at_a_time_and_others_beside_them():
    threads = Threads("test", 2)
    opened, running = threading.Event(), threading.Semaphore(0)

    def held() -> bool:
        running.release()
        return opened.wait(LONG_S)

    same = [threads.start(held, key="a") for _ in range(3)]
    assert running.acquire(timeout=LONG_S)
    assert threads.start(lambda: "b", key="b").result(LONG_S) == "b"
    assert not running.acquire(blocking=False)
    assert not same[0].cancel()
    opened.set()
    assert [each.result(LONG_S) for each in same] == [True] * 3


def test_callers_who_leave_a_load_that_hangs_are_forgotten():
    outcome: Outcome[str] = Outcome()

    async def leave() -> None:
        task = asyncio.create_task(outcome.wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def main() -> None:
        for _ in range(100):
            await leave()
            await outcome.wait(timeout=0)
        gc.collect()
        assert sum(isinstance(each, asyncio.Future) for each in gc.get_objects()) < 50
        waits = [asyncio.create_task(outcome.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        threading.Thread(target=outcome.set_result, args=("done",)).start()
        await asyncio.gather(*waits)
        await outcome.wait()

    asyncio.run(main())
    assert outcome.result() == "done"


@pytest.mark.parametrize("timeout", [1e12, 1e300, float("inf")])
@pytest.mark.parametrize("change", ["remove", "close"])
def test_a_change_may_wait_any_time_for_a_request(gate, timeout, change):
    held = gate("any time")
    rounder = AllRounder({"a": {"backend": "TestGate", "gate": "any time"}}, drain_timeout=timeout)
    request = rounder.submit_request("a", {"data": 1})
    assert held.begun.acquire(timeout=LONG_S)
    threads = Threads("test", 1)
    changed = threads.start(rounder.close if change == "close" else lambda: rounder.remove("a"))
    threading.Timer(0.05, held.opened.set).start()
    changed.result(LONG_S)
    assert request.result(LONG_S)["result"] == "any time"
    rounder.close()
