"""What became of the requests of each class of service at a node."""

from __future__ import annotations

import re
from typing import Any

import hami
import pytest
from running import Gate


@hami.register
class TestLaneStatsDivides(hami.Backend):
    max = 8

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = 1 / item["data"]


def test_the_classes_add_up_to_the_node() -> None:
    with hami.pipe("TestLaneStatsDivides") as pipe:
        for priority in (0, 7, 253, 254, 255, 255):
            pipe({"data": 1}, priority=priority)
        with pytest.raises(ZeroDivisionError):
            pipe({"data": 0}, priority=255)
        with pytest.raises(hami.DeadlineExceeded):
            pipe({"data": 1}, priority=254, timeout=0)
        node = pipe.stats()["default"]
    assert list(node.lanes) == ["urgent", "high", "normal"]
    urgent, high, normal = node.lanes.values()
    assert isinstance(urgent, hami.observe.LaneStats)
    assert (urgent.submitted, urgent.completed, urgent.failed) == (3, 2, 1)
    assert (normal.submitted, normal.completed) == (3, 3)
    assert high.completed == 1
    for lane in node.lanes.values():
        ended = lane.completed + lane.failed + lane.rejected + lane.expired + lane.cancelled
        assert lane.submitted == ended + lane.waiting + lane.running
    assert sum(lane.submitted for lane in node.lanes.values()) == node.submitted
    assert node.as_dict()["lanes"]["urgent"] == urgent.as_dict()
    assert re.search(
        r"urgent: submitted 3, completed 2, failed 1,\n +urgent: queue_ms p99 [\d.]+, latency_ms p99 [\d.]+,",
        repr(node),
    )


def test_each_class_has_the_times_of_its_requests() -> None:
    gate = Gate()

    @hami.register
    class TestLaneStatsWaits(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            gate.enter()
            for item in batch:
                item["result"] = 1

    with hami.pipe("BackgroundThread[TestLaneStatsWaits]") as pipe:
        running = pipe.submit({"data": 1}, priority=254)
        gate.wait_for_arrival()
        waiting = [pipe.submit({"data": 1}, priority=priority) for priority in (0, 255, 0)]
        gate.open()
        for future in (running, *waiting):
            future.result()
        node = pipe.stats()["default"]
    assert {name: lane.latency_ms.count for name, lane in node.lanes.items()} == {"urgent": 1, "high": 1, "normal": 2}
    urgent, high, normal = node.lanes.values()
    assert urgent.queue_ms.max <= normal.queue_ms.max
    assert (urgent.queue_ms + high.queue_ms + normal.queue_ms).buckets == node.queue_ms.buckets
    assert (urgent.latency_ms + high.latency_ms + normal.latency_ms).buckets == node.latency_ms.buckets
    assert urgent.as_dict()["latency_ms"]["count"] == 1


def test_a_class_without_requests_is_not_printed() -> None:
    with hami.pipe("Identity") as pipe:
        pipe({"data": 1}, priority=255)
        text = repr(pipe.stats()["default"])
    assert "urgent: submitted 1" in text
    assert "high" not in text
    assert "normal" not in text


def test_the_statistics_of_one_class_show_their_times() -> None:
    with hami.pipe("Identity") as pipe:
        pipe({"data": 1}, priority=255)
        urgent = pipe.stats()["default"].lanes["urgent"]
    assert "latency_ms=<Histogram count=1," in repr(urgent)


def test_a_node_with_normal_requests_only_has_three_classes_and_prints_none() -> None:
    with hami.pipe("TestLaneStatsDivides") as pipe:
        pipe({"data": 1})
        node = pipe.stats()["default"]
    assert node.lanes["normal"].completed == 1
    assert node.lanes["urgent"] == hami.observe.LaneStats({})
    assert "lanes" not in node.as_dict()
    assert "urgent" not in repr(node)


def test_the_statistics_of_a_class_are_a_snapshot() -> None:
    stats = hami.observe.LaneStats({"submitted": 1, "completed": 1})
    with pytest.raises(AttributeError, match="snapshot; failed"):
        stats.failed = 2
    assert repr(stats).startswith("LaneStats(submitted=1, completed=1, failed=0")
    assert stats != hami.observe.LaneStats({})
