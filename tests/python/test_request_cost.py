"""request_cost: requests of similar size share batches."""

from __future__ import annotations

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
