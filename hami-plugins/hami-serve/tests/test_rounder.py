"""AllRounder: models that change while requests run."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import hami
import pytest
from conftest import say

from hami_serve import AllRounder, ModelUnavailable, State


def words(answer: dict) -> dict[str, str]:
    return {name: request["result"].partition(" on ")[0] for name, request in answer.items()}


def states(rounder: AllRounder) -> dict[str, str]:
    return {f"{model.handle.component}:{model.handle.version}": str(model.state) for model in rounder.models()}


def test_one_request_goes_to_every_component():
    with AllRounder({"detect": say("box"), "mask": say("mask")}) as rounder:
        assert words(rounder.infer({"data": 1})) == {"detect": "box", "mask": "mask"}
        assert words(rounder.infer({"data": 1}, components=["mask"], version="1")) == {"mask": "mask"}


def test_the_program_of_the_readme_under_load_loses_no_request(tmp_path):
    """add, update, remove and move while 16 threads call: every call returns an answer of some model that was there."""
    (tmp_path / "mask.toml").write_text('[mask]\nbackend = "TestSay"\nword = "mask2"\n')
    (tmp_path / "models.toml").write_text(
        '[detect]\nbackend = "TestSay"\nword = "detect1"\n[mask]\nbackend = "TestSay"\nword = "mask1"\n'
    )
    stop = threading.Event()
    seen: set[str] = set()
    wrong: list[BaseException] = []
    calls = [0] * 16
    rounder = AllRounder(tmp_path / "models.toml")

    def call(number: int) -> None:
        while not stop.is_set():
            try:
                seen.add(rounder.infer({"data": number}, components=["mask"])["mask"]["result"])
                calls[number] += 1
            except BaseException as error:
                wrong.append(error)
                return

    threads = [threading.Thread(target=call, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    try:
        rounder.submit("mask", tmp_path / "mask.toml", version="2")
        for turn in range(20):
            rounder.update({"detect": say(f"detect{turn}"), "mask": say(f"mask{turn}")})
        rounder.remove("detect")
        rounder["mask"].to("npu:1")
        assert rounder.infer({"data": 0}) == {"mask": {"data": 0, "result": "mask19 on npu:1"}}
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        done = sum(calls)
        table = rounder.table()
        rounder.close()
    assert wrong == []
    assert done > 20
    assert {"mask2 on cpu", "mask19 on cpu"} & seen
    assert table.splitlines()[0].split()[:4] == ["id", "component", "version", "class"]
    assert "TestSay" in table
    assert "npu:1" in table


def test_a_replaced_model_finishes_its_requests_before_it_is_closed(gate):
    old = gate("old")
    with AllRounder({"a": {"backend": "TestGate", "gate": "old"}}) as rounder:
        future = rounder.submit_request("a", {"data": 1})
        assert old.begun.acquire(timeout=10)
        change = threading.Thread(target=rounder.submit, args=("a", say("new")))
        change.start()
        while words(rounder.infer({"data": 1}, ["a"]) if states(rounder)["a:1"] != "ready" else {}) != {"a": "new"}:
            if any(model.state is State.DRAINING for model in rounder.models()):
                assert words(rounder.infer({"data": 1}, ["a"])) == {"a": "new"}
                break
        assert not future.done()
        old.opened.set()
        assert future.result(10)["result"] == "old"
        change.join(10)
        assert states(rounder) == {"a:1": "ready"}


def test_a_model_that_cannot_be_built_changes_nothing():
    with AllRounder({"a": say("old")}) as rounder:
        handle = rounder["a"].handles
        with pytest.raises(RuntimeError, match="damaged"):
            rounder.submit("a", "TestBroken")
        with pytest.raises(RuntimeError, match="damaged"):
            rounder.update({"a": say("new"), "b": say("b"), "c": "TestBroken"})
        with pytest.raises(RuntimeError, match="no device gpu:9"):
            rounder["a"].to("gpu:9")
        assert rounder["a"].handles == handle
        assert rounder.components() == ["a"]
        assert words(rounder.infer({"data": 1})) == {"a": "old"}


def test_a_device_that_does_not_exist_changes_nothing():
    with AllRounder({"a": say("word")}) as rounder:
        before = rounder["a"].handles
        with pytest.raises(RuntimeError, match="there is no device npu:9"):
            rounder["a"].to("npu:9")
        assert rounder["a"].handles == before
        assert rounder["a"]({"data": 0})["result"] == "word on cpu"


def test_a_new_model_that_fails_is_listed_with_its_reason_until_it_is_replaced():
    with AllRounder() as rounder:
        with pytest.raises(RuntimeError):
            rounder.submit("a", "TestBroken")
        (model,) = rounder.models()
        assert (model.state, model.reason) == (State.FAILED, "RuntimeError: the file of the model is damaged")
        with pytest.raises(ModelUnavailable, match="failed to load: RuntimeError: the file of the model is damaged"):
            rounder.infer({"data": 1}, ["a"])
        assert rounder.infer({"data": 1}) == {}
        rounder.submit("a", say("a"))
        assert words(rounder.infer({"data": 1})) == {"a": "a"}


def test_update_keeps_what_has_not_changed():
    with AllRounder({"a": say("a"), "b": say("b")}) as rounder:
        before = rounder["a"].handles
        rounder.update({"a": say("a"), "b": say("other")})
        assert rounder["a"].handles == before
        assert rounder["b"].handles[0].generation > before[0].generation


def test_a_removed_model_is_freed_though_a_program_holds_its_handle_and_view():
    with AllRounder({"a": say("a")}) as rounder:
        view, (handle,) = rounder["a"], rounder["a"].handles
        pipe = weakref.ref(rounder.registry.at(handle).pipe)
        rounder.remove("a")
        gc.collect()
        assert pipe() is None
        with pytest.raises(hami.NotFound, match=r"a:1#1 is not loaded any more"):
            rounder.registry.at(handle)
        with pytest.raises(hami.NotFound, match='there is no model "a"'):
            view({"data": 1})


def test_versions_aliases_and_the_default():
    with AllRounder({"a": {"versions": {"2": say("two"), "10": say("ten")}, "aliases": ["latest"]}}) as rounder:
        assert words(rounder.infer({"data": 1})) == {"a": "ten"}
        rounder.route("a", default="2")
        assert words(rounder.infer({"data": 1}, ["latest"])) == {"latest": "two"}
        assert words(rounder.infer({"data": 1}, ["a"], version="10")) == {"a": "ten"}
        with pytest.raises(hami.NotFound, match='"a" has no version "3"; versions: 10, 2'):
            rounder.infer({"data": 1}, ["a"], version="3")
        rounder.remove("a", "2")
        assert words(rounder.infer({"data": 1})) == {"a": "ten"}


def test_weights_split_the_requests_exactly():
    with AllRounder({"a": {"versions": {"1": say("one"), "2": say("two")}, "weights": {"1": 3, "2": 1}}}) as rounder:
        answers = [words(rounder.infer({"data": 1}))["a"] for _ in range(40)]
        assert (answers.count("one"), answers.count("two")) == (30, 10)
        assert "two" in answers[:4]


def test_the_least_recently_used_model_is_unloaded_and_loaded_again_by_a_request():
    with AllRounder({"a": say("a"), "b": say("b")}, max_loaded=2) as rounder:
        rounder.infer({"data": 1}, ["a"])
        rounder.submit("c", say("c"))
        assert states(rounder) == {"a:1": "ready", "b:1": "unloaded", "c:1": "ready"}
        assert words(rounder.infer({"data": 1}, ["b"])) == {"b": "b"}
        assert states(rounder) == {"a:1": "unloaded", "b:1": "ready", "c:1": "ready"}


def test_a_memory_budget_unloads_models():
    table = {"source": say("x"), "memory": 60}
    with AllRounder({"a": table}, memory_budget=100) as rounder:
        rounder.submit("b", table)
        assert states(rounder) == {"a:1": "unloaded", "b:1": "ready"}


def test_an_unloaded_model_says_so_and_can_be_loaded():
    with AllRounder({"a": say("a")}) as rounder:
        rounder.unload("a")
        with pytest.raises(ModelUnavailable, match='"a" version "1" is unloaded; load it first'):
            rounder.infer({"data": 1}, ["a"])
        rounder.load("a")
        assert words(rounder.infer({"data": 1})) == {"a": "a"}


def test_two_updates_at_once_are_made_one_after_the_other():
    with AllRounder({"a": say("a")}) as rounder:
        wanted = [{name: say(name) for name in names} for names in (("b", "c"), ("d", "e"))]
        threads = [threading.Thread(target=rounder.update, args=(each,)) for each in wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert rounder.components() in (["b", "c"], ["d", "e"])


def test_the_first_component_that_fails_cancels_the_others(gate):
    gate("slow")
    with AllRounder({"bad": "TestFails", "slow": {"backend": "TestGate", "gate": "slow"}}) as rounder:
        with pytest.raises(ValueError, match="not a picture"):
            rounder.infer({"data": 1})
        slow = rounder["slow"].models()[0]
        assert (slow.in_flight, slow.failures) == (0, 1)


def test_warm_up_requests_run_before_a_model_is_visible():
    table = {"source": "Identity", "warmup": 3, "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]}
    with AllRounder({"a": table}) as rounder:
        (model,) = rounder.registry.models()
        assert model.pipe.stats()["default"].completed == 3
        assert rounder.models()[0].calls == 0


def test_a_task_that_is_cancelled_cancels_its_request(gate):
    slow = gate("cancel")

    async def main() -> None:
        with AllRounder({"a": {"backend": "TestGate", "gate": "cancel"}}) as rounder:
            task = asyncio.create_task(rounder.acall("a", {"data": 1}))
            await asyncio.to_thread(slow.begun.acquire, timeout=10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(slow.cancelled.wait, 10)
            assert rounder.models()[0].failures == 1

    asyncio.run(main())


def test_a_task_that_is_cancelled_cancels_the_rows_of_its_request_which_count_as_one(gate):
    slow = gate("rows")

    async def main() -> None:
        with AllRounder({"a": {"backend": "TestGate", "gate": "rows", "max": 4, "instance_num": 2}}) as rounder:

            async def call() -> None:
                model, left = await rounder.acquire_async("a")
                await rounder.acall_rows(model, [{"data": row} for row in range(3)], left)

            task = asyncio.create_task(call())
            await asyncio.to_thread(slow.begun.acquire, timeout=10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(slow.cancelled.wait, 10)
            (found,) = rounder.models()
            assert (found.in_flight, found.calls, found.failures) == (0, 1, 1)
            slow.opened.set()
            await call()
            (found,) = rounder.models()
            assert (found.in_flight, found.calls, found.failures) == (0, 2, 1)

    asyncio.run(main())


def test_the_rows_that_fail_are_named_and_the_others_have_their_result():
    async def main() -> None:
        with AllRounder({"a": "FanOut[Identity]"}) as rounder:
            requests = [{"data": [1]}, {"data": 7}, {"data": [2]}]
            model, left = await rounder.acquire_async("a")
            errors = await rounder.acall_rows(model, requests, left)
            assert [type(error).__name__ for error in errors] == ["NoneType", "DataTypeError", "NoneType"]
            assert [request.get("result") for request in requests] == [[1], None, [2]]
            assert rounder.models()[0].failures == 1

    asyncio.run(main())


def test_many_load_and_unload_cycles_leave_an_exact_registry():
    with AllRounder({"a": say("a")}) as rounder:
        for _ in range(50):
            rounder.submit("b", say("b"))
            rounder.remove("b")
        assert states(rounder) == {"a:1": "ready"}
        assert rounder.submit("b", say("b")).generation == 52


def test_a_closed_rounder_takes_no_models():
    rounder = AllRounder({"a": say("a")})
    rounder.close()
    with pytest.raises(hami.PipeClosed, match="the AllRounder is closed"):
        rounder.submit("b", say("b"))
    with pytest.raises(hami.PipeClosed, match="the AllRounder is closed"):
        rounder.infer({"data": 1}, ["a"])


def test_a_lazy_all_rounder_loads_each_model_by_its_first_request():
    with AllRounder({"first": say("one"), "broken": "TestBroken", "second": say("two")}, lazy=True) as rounder:
        assert set(states(rounder).values()) == {"unloaded"}
        assert words(rounder.infer({"data": 1}, ["second"])) == {"second": "two"}
        assert states(rounder) == {"first:1": "unloaded", "broken:1": "unloaded", "second:1": "ready"}
        with pytest.raises(ModelUnavailable, match="failed to load: RuntimeError: the file of the model is damaged"):
            rounder.infer({"data": 1}, ["broken"])
