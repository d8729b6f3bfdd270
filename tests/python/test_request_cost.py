"""request_cost: requests of similar size share batches."""

from __future__ import annotations

import math
from typing import Any

import hami
import pytest
from rows import failure
from running import TIMEOUT, each, gated


def sized(data: int, size: Any) -> dict[str, Any]:
    return {"data": data, "size": size}


def test_until_the_times_are_known_requests_of_equal_cost_share_a_batch_in_their_order() -> None:
    cls = gated(max=8)
    with hami.pipe({"backend": "TestGated", "request_cost": "size", "max": 8}) as pipe:
        first = pipe.submit(sized(0, 1))
        cls.gate.wait_for_arrival()
        later = [pipe.submit(sized(i, size)) for i, size in enumerate([9, 5.5, 9, 5.5, 9], start=1)]
        cls.gate.open()
        assert [one.result(TIMEOUT)["result"] for one in [first, *later]] == [100, 101, 102, 103, 104, 105]
        policy = pipe.stats()["default"].policy
    assert cls.seen == [[0], [1, 3, 5], [2, 4]]
    assert (policy.padding, policy.batch_cost) == (0, pytest.approx((1 + 3 * 9 + 2 * 5.5) / 3))
    assert policy.cost_per_second > 0


def test_one_call_of_unequal_requests_is_divided() -> None:
    cls = gated(max=8, thread="concurrent")
    cls.gate.open()
    with hami.pipe({"backend": "TestGated", "request_cost": "size", "max": 8}) as pipe:
        pipe([sized(i, size) for i, size in enumerate([3, 200, 3, 200])], timeout=TIMEOUT)
        assert cls.seen == [[0, 2], [1, 3]]
        assert pipe.stats()["default"].inline_batches == 0


@pytest.mark.parametrize(
    ("keys", "got"),
    [
        ({}, 'the request must have a positive number as its key "size"; it has no such key'),
        ({"size": 0}, 'the request must have a positive number as its key "size", got 0.000000'),
        ({"size": float("nan")}, 'the request must have a positive number as its key "size", got nan'),
        ({"size": "long"}, 'the request must have a positive number as its key "size", got str'),
    ],
)
def test_a_request_whose_cost_is_no_positive_number_fails(keys: dict[str, Any], got: str) -> None:
    each(lambda data: data, "TestEcho")
    config = {"backend": "TestEcho", "request_cost": "size"}
    assert failure(config, hami.RequestError, **keys) == f"request_cost: {got}"


def test_a_hook_before_the_queue_may_set_the_cost() -> None:
    class Measure(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["size"] = len(item["data"])

    hami.register("TestMeasure")(Measure)
    each(len, "TestLength")
    config = {
        "backend": "TestLength",
        "request_cost": "size",
        "node_entrypoint": "List[InstancesRegister[Reflect[backend]], Register[InstanceDispatcher[TestMeasure]]]",
    }
    with hami.pipe(config) as pipe:
        assert pipe({"data": "four"}, timeout=TIMEOUT)["result"] == 4
        assert pipe.stats()["default"].policy.batch_cost == 4


def batches_of(cls: Any, config: dict[str, Any], sizes: list[Any]) -> list[list[int]]:
    """Return the batches of requests with these keys `size`, which wait while another one runs."""
    with hami.pipe({"max": 8, **config}) as pipe:
        first = pipe.submit({**sized(0, 1), "rank": 1})
        cls.gate.wait_for_arrival()
        later = [pipe.submit({**sized(i, size), "rank": i + 1}) for i, size in enumerate(sizes, start=1)]
        cls.gate.open()
        for one in [first, *later]:
            one.result(TIMEOUT)
    return list(cls.seen[1:])


def method(self: Any, item: Any) -> Any:
    return item["size"]


def static(item: Any) -> Any:
    return item["size"]


@pytest.mark.parametrize("cost", ["size", method, staticmethod(static), property(lambda self: "size")])
@pytest.mark.parametrize("backend", ["TestGated", "S[TestGated, Identity]"])
def test_a_class_declares_the_cost(cost: Any, backend: str) -> None:
    cls = gated(max=8, request_cost=cost)
    assert batches_of(cls, {"backend": backend}, [9, 5.5, 9, 5.5, 9]) == [[1, 3, 5], [2, 4]]


@pytest.mark.parametrize("thread", ["dedicated", "serialized", "concurrent"])
def test_a_declared_cost_holds_in_every_thread_mode(thread: str) -> None:
    cls = gated(max=8, thread=thread, request_cost=method)
    assert batches_of(cls, {"backend": "TestGated"}, [9, 5, 9, 5]) == [[1, 3], [2, 4]]


@pytest.mark.parametrize(
    ("config", "batches"), [({"request_cost": "rank"}, [[1], [2], [3]]), ({"request_cost": ""}, [[1, 2, 3]])]
)
def test_the_configuration_wins_over_the_class(config: dict[str, Any], batches: list[list[int]]) -> None:
    cls = gated(max=8, request_cost="size")
    assert batches_of(cls, {"backend": "TestGated", **config}, [9, 9, 9]) == batches


def test_the_cost_of_a_later_backend_does_not_count() -> None:
    each(lambda data: data, "TestEcho", max=8, request_cost="size")
    cls = gated(max=8)
    assert batches_of(cls, {"backend": "S[TestGated, TestEcho]"}, [9, 5, 9]) == [[1, 2, 3]]


def test_a_node_without_batches_ignores_a_declared_cost() -> None:
    each(lambda data: data, "TestEcho", thread="concurrent", request_cost="missing")
    with hami.pipe("TestEcho") as pipe:
        assert pipe({"data": 1})["result"] == 1
        assert pipe.stats()["default"].inline_batches == 1


@pytest.mark.parametrize(
    ("cost", "error", "message"),
    [
        (0, hami.RequestError, "TestSized.request_cost must return a positive number, got 0.000000"),
        (-3, hami.RequestError, "TestSized.request_cost must return a positive number, got -3.000000"),
        (math.nan, hami.RequestError, "TestSized.request_cost must return a positive number, got nan"),
        (math.inf, hami.RequestError, "TestSized.request_cost must return a positive number, got inf"),
        (None, hami.RequestError, "TestSized.request_cost must return a positive number, got None"),
        (True, hami.RequestError, "TestSized.request_cost must return a positive number, got bool"),
        ("long", hami.RequestError, "TestSized.request_cost must return a positive number, got str"),
        (KeyError("no length"), KeyError, "no length"),
        (hami.DataTypeError("no text"), hami.DataTypeError, "no text"),
    ],
)
def test_a_wrong_cost_fails_its_request_alone(cost: Any, error: type[Exception], message: str) -> None:
    def checked(self: Any, item: Any) -> Any:
        if isinstance(item["size"], Exception):
            raise item["size"]
        return item["size"]

    each(lambda data: data, "TestSized", max=8, request_cost=checked)
    with hami.pipe({"backend": "TestSized", "max": 8}) as pipe:
        pending = [pipe.submit(sized(i, size)) for i, size in enumerate([3, cost, 3])]
        with pytest.raises(error, match=message) as raised:
            pending[1].result(TIMEOUT)
        assert any('node "default"' in note for note in getattr(raised.value, "__notes__", ['node "default"']))
        assert [pending[0].result(TIMEOUT)["result"], pending[2].result(TIMEOUT)["result"]] == [0, 2]
        with pytest.raises(hami.BatchError, match="1 request failed at index 1"):
            pipe([sized(0, 3), sized(1, cost)], timeout=TIMEOUT)
        assert pipe({"data": 4, "size": 1}, timeout=TIMEOUT)["result"] == 4


@pytest.mark.parametrize("cost", [1e308, 5e-324, 2**62])
@pytest.mark.parametrize("declared", ["size", method])
def test_a_cost_without_measure_is_bounded(cost: float, declared: Any) -> None:
    each(lambda data: data, "TestSized", max=8, request_cost=declared)
    with hami.pipe({"backend": "TestSized", "max": 8, "admission": "deadline"}) as pipe:
        for size in (1, 2, 3, 4, cost) * 4:  # until the times are known, and after
            for count in (1, 3):
                found = [pipe.submit(sized(i, size), timeout=TIMEOUT) for i in range(count)]
                for one in found:
                    assert one.exception(TIMEOUT) is None or isinstance(one.exception(), hami.DeadlineExceeded)
        policy = pipe.stats()["default"].policy
        assert pipe(sized(7, 1), timeout=TIMEOUT)["result"] == 7
    assert policy.batch_cost is not None
    assert 0 < policy.batch_cost <= 8e12
    assert policy.padding is not None
    assert 0 <= policy.padding <= 1


@pytest.mark.parametrize("cost", [3, "", b"size", ["size"]])
def test_a_declaration_of_another_form(cost: Any) -> None:
    each(lambda data: data, "TestSized", max=8, request_cost=cost)
    with pytest.raises(
        hami.ConfigError, match=r"TestSized\.request_cost must be a key of requests, a method or None, got"
    ):
        hami.pipe({"backend": "TestSized"})


def test_a_class_of_another_process_cannot_declare_a_cost() -> None:
    with pytest.raises(hami.PluginError, match='thread = "process" excludes request_cost'):
        each(lambda data: data, "TestSized", thread="process", request_cost="size")
