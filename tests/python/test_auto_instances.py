"""instance_num = "auto": a lightweight node has an instance for each CPU and uses more while throughput improves."""

from __future__ import annotations

import os
from typing import Any

import hami
import pytest

CPUS = len(os.sched_getaffinity(0))


def lightweight(name: str, **attributes: Any) -> list[int]:
    """Register a lightweight class that doubles `data`; return the list of the numbers of its instances."""
    numbers: list[int] = []

    def init(_: Any, options: Any) -> None:
        numbers.append(options["instance"])

    def forward(_: Any, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = 2 * item["data"]

    members = {"thread": "concurrent", "lightweight": True, "init": init, "forward": forward, **attributes}
    hami.register(type(name, (hami.Backend,), members))
    return numbers


def instance_num(config: Any) -> Any:
    with hami.pipe(config) as pipe:
        return pipe.describe()["nodes"]["default"]["batching"]["instance_num"]


@pytest.mark.parametrize("keys", [{}, {"instance_num": "auto"}])
@pytest.mark.parametrize(
    "expression", ["TestLight", "S[TestLight,Identity]", "S[Add(k=1),TestLight,CatSplit[Identity,TestLight,Identity]]"]
)
def test_a_node_of_lightweight_classes_has_an_instance_for_each_cpu(expression: str, keys: dict[str, Any]) -> None:
    numbers = lightweight("TestLight")
    config = {"backend": expression, **keys}
    assert instance_num(config) == "auto"
    assert sorted(set(numbers)) == list(range(CPUS))


def test_a_number_is_what_was_asked_for() -> None:
    numbers = lightweight("TestLight")
    with hami.pipe({"backend": "TestLight", "instance_num": 3}) as pipe:
        assert pipe({"data": 2})["result"] == 4
        assert pipe.stats()["default"].instances_in_use is None
        assert pipe.describe()["nodes"]["default"]["batching"]["instance_num"] == 3
    assert sorted(numbers) == [0, 1, 2]


@pytest.mark.parametrize("is_lightweight", [True, False])
def test_zero_is_one_for_each_cpu_and_all_of_them_run(is_lightweight: bool) -> None:
    numbers = lightweight("TestLight", lightweight=is_lightweight)
    with hami.pipe({"backend": "TestLight", "instance_num": 0}) as pipe:
        assert pipe({"data": 2})["result"] == 4
        assert pipe.stats()["default"].instances_in_use is None
        assert pipe.describe()["nodes"]["default"]["batching"]["instance_num"] == CPUS
    assert sorted(numbers) == list(range(CPUS))


@pytest.mark.parametrize("keys", [{}, {"instance_num": "auto"}])
@pytest.mark.parametrize(
    "expression",
    ["Identity", "S[TestLight,Sleep(0s)]", "TestUsual", "TestDevice", "TestDevice(device=cuda)", "TestProvider"],
)
def test_other_nodes_have_one_instance(expression: str, keys: dict[str, Any]) -> None:
    lightweight("TestLight")
    lightweight("TestUsual", lightweight=False)
    lightweight("TestDevice", __annotations__={"device": "str"}, device="cuda:1")
    lightweight("TestProvider", __annotations__={"provider": "str"}, provider="tensorrt")
    assert instance_num({"backend": expression, **keys}) == 1


def test_a_device_that_is_the_cpu_does_not_count() -> None:
    lightweight("TestDevice", __annotations__={"device": "str"}, device="cuda")
    assert instance_num({"backend": "TestDevice(device=cpu)"}) == "auto"


@pytest.mark.skipif(CPUS == 1, reason="a process with one CPU has nothing to learn")
def test_a_node_begins_with_one_instance() -> None:
    lightweight("TestLight")
    with hami.pipe("TestLight") as pipe:
        assert pipe.stats()["default"].instances_in_use is None  # nothing has run
        assert [pipe({"data": number})["result"] for number in range(3)] == [0, 2, 4]
        assert pipe.stats()["default"].instances_in_use == 1
        assert pipe.stats()["default"].as_dict()["instances_in_use"] == 1


@pytest.mark.skipif(CPUS == 1, reason="the instance that calls is the only one")
def test_a_lightweight_node_may_call_itself() -> None:
    def init(self: Any, _: Any) -> None:
        self.own = self.find("node.default")

    def forward(self: Any, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = self.own({"data": item["data"] - 1})["result"] + 1 if item["data"] else 0

    lightweight("TestCallsItself", init=init, forward=forward)
    with hami.pipe({"backend": "TestCallsItself", "max": 1}) as pipe:
        assert pipe({"data": 1})["result"] == 1
        assert pipe.stats()["default"].completed == 2


def test_an_instance_beyond_the_first_has_a_number_only_if_the_node_has_one() -> None:
    lightweight("TestLight")
    config: dict[str, Any] = {"backend": "TestLight", "entrypoint": "Forward[default.1]"}
    with pytest.raises(hami.NotFound, match=r"default\.1"):
        hami.pipe(config)
    with hami.pipe({**config, "instance_num": 2}) as pipe:
        assert pipe({"data": 1})["result"] == 2


def test_reserve_needs_an_instance_that_runs_normal_requests() -> None:
    lightweight("TestLight")
    with hami.pipe({"backend": "TestLight", "instance_num": 2, "reserve": 1}) as pipe:
        assert pipe({"data": 1})["result"] == 2
    with pytest.raises(hami.ConfigError, match="reserve"):
        hami.pipe({"backend": "TestLight", "reserve": CPUS})


def test_every_request_has_its_own_result_while_the_number_is_learned() -> None:
    lightweight("TestLight", max=1)
    with hami.pipe("TestLight") as pipe:
        futures = [pipe.submit({"data": number}) for number in range(2000)]
        assert [future.result()["result"] for future in futures] == [2 * number for number in range(2000)]
        stats = pipe.stats()["default"]
        assert (stats.submitted, stats.completed, stats.batches) == (2000, 2000, 2000)
        assert stats.instances_in_use is None or 1 <= stats.instances_in_use <= CPUS


def test_a_class_says_how_many_instances_pay_on_a_device() -> None:
    on_device = {"__annotations__": {"device": "str"}, "device": "cuda", "instances_on_device": 2}
    numbers = lightweight("TestOnDevice", **on_device)
    lightweight("TestLight")
    for expression in ("TestOnDevice", "S[TestLight,TestOnDevice]"):
        numbers.clear()
        assert instance_num({"backend": expression}) == ("auto" if CPUS > 1 else 1)
        assert sorted(numbers) == list(range(min(2, CPUS)))
    assert instance_num({"backend": "TestOnDevice", "instance_num": 0}) == min(2, CPUS)
    numbers.clear()
    assert instance_num({"backend": "TestOnDevice(device=cpu)"}) == "auto"
    assert sorted(numbers) == list(range(CPUS))
