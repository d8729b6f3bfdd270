"""The keys that schedule a node, in the order of reference/configuration.md, "Keys of a node"."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hami
import pytest
from rows import answer, answers, failure, refused, sizing
from running import TIMEOUT, backend, each, gated


def with_a_busy_instance(config: dict[str, Any], cls: Any, *batches: list[int]) -> list[list[int]]:
    """Occupy the only instance with request 0, submit the others, and return the batches that the instance saw."""
    with hami.pipe(config) as pipe:
        futures = [pipe.submit({"data": 0})]
        cls.gate.wait_for_arrival()
        futures += [pipe.submit({"data": number}) for batch in batches for number in batch]
        cls.gate.open()
        for future in futures:
            future.result(TIMEOUT)
    return cls.seen


def test_backend_is_required_and_takes_an_expression() -> None:
    assert "the node has no backend" in refused({"node": {"max": 1}})
    assert answer({"backend": "S[Identity,Identity]"}, 3) == 3


@pytest.mark.parametrize("number", [1, 3])
def test_as_many_batches_run_in_parallel_as_instance_num(number: int) -> None:
    cls = gated()
    config = {"backend": "TestGated", **({"instance_num": number} if number > 1 else {})}
    with hami.pipe(config) as pipe:
        futures = [pipe.submit({"data": data}) for data in range(4)]
        for _ in range(number):
            cls.gate.wait_for_arrival()
        assert len(cls.seen) == number
        cls.gate.open()
        assert [future.result(TIMEOUT)["result"] for future in futures] == [100, 101, 102, 103]


def test_max_counts_items_and_its_default_is_that_of_the_backend() -> None:
    """A request has `request_size` items, 1 by default."""
    sizes = sizing(max=4)
    assert answers("Sizes", *range(8)) == list(range(8))
    assert sizes == [4, 4]
    sizes.clear()
    with hami.pipe("Sizes") as pipe:
        pipe([{"data": number, "request_size": size} for number, size in enumerate((3, 1, 2, 2))])
    assert sizes == [2, 2]


def test_max_of_a_node_limits_a_backend_that_declares_no_range() -> None:
    """Without a declared range, `max` of the node is 1 by default."""
    assert with_a_busy_instance({"backend": "TestGated"}, gated(), [1, 2, 3]) == [[0], [1], [2], [3]]
    assert with_a_busy_instance({"backend": "TestGated", "max": 2}, gated(), [1, 2, 3]) == [[0], [1, 2], [3]]


def test_max_above_the_range_of_the_backend_is_an_error() -> None:
    sizes = sizing(max=4)
    assert 'max is 5; the backend of node "default" takes at most 4' in refused({"backend": "Sizes", "max": 5})
    assert answers({"backend": "Sizes", "max": 2}, 1, 2, 3, 4) == [1, 2, 3, 4]
    assert sizes == [2, 2]


def test_max_of_a_container_is_that_of_its_narrowest_child() -> None:
    """Children with `max` 1 do not count: the container calls them item by item."""
    wide, narrow, single = (sizing(name, max=most) for name, most in (("Wide", 8), ("Narrow", 4), ("Single", 1)))
    assert answers("S[Wide,Single,Narrow]", *range(8)) == list(range(8))
    assert (wide, narrow, single) == ([4, 4], [4, 4], [1] * 8)


def test_with_batching_timeout_0_waiting_requests_still_form_one_batch() -> None:
    assert with_a_busy_instance({"backend": "TestGated"}, gated(max=8), [1, 2, 3]) == [[0], [1, 2, 3]]


def test_a_single_request_never_waits_for_batching_timeout_while_an_instance_is_idle() -> None:
    sizes = sizing(max=4)
    assert answer({"backend": "Sizes", "batching_timeout": "1h"}, 5) == 5
    assert sizes == [1]


def test_batching_timeout_limits_how_long_requests_are_held_so_that_others_can_join() -> None:
    sizes = sizing(max=4)
    begin = time.monotonic()
    assert answers({"backend": "Sizes", "batching_timeout": "20ms"}, 1, 2, 3) == [1, 2, 3]
    assert time.monotonic() - begin >= 0.02
    assert answers({"backend": "Sizes", "batching_timeout": "1h"}, 1, 2, 3, 4) == [1, 2, 3, 4]
    assert sizes == [3, 4]


def test_below_min_requests_that_arrive_complete_the_batch() -> None:
    sizes = sizing(max=2)
    config = {"backend": "Sizes", "min": 2, "batching_timeout": "1h"}
    with hami.pipe(config) as pipe:
        first, second = pipe.submit({"data": 1}), pipe.submit({"data": 2})
        assert [first.result(TIMEOUT)["result"], second.result(TIMEOUT)["result"]] == [1, 2]
    assert sizes == [2]


def test_below_min_a_request_fails_after_batching_timeout() -> None:
    sizes = sizing(max=4)
    begin = time.monotonic()
    message = failure({"backend": "Sizes", "min": 2, "batching_timeout": 20}, hami.RequestError, 1)
    assert time.monotonic() - begin >= 0.02
    assert message == 'node "default" takes at least 2 items; only 1 arrived within batching_timeout'
    assert sizes == []


def test_a_full_queue_blocks_the_caller_by_default() -> None:
    cls = gated()
    with hami.pipe({"backend": "TestGated", "max_queue_size": 1}) as pipe, ThreadPoolExecutor() as threads:
        running = pipe.submit({"data": 1})
        cls.gate.wait_for_arrival()
        waiting = pipe.submit({"data": 2})
        with pytest.raises(hami.DeadlineExceeded, match='the queue of node "default" was full'):
            pipe({"data": 3}, timeout=0.01)
        blocked = threads.submit(pipe, {"data": 4})
        assert not blocked.done()
        cls.gate.open()
        assert [one.result(TIMEOUT)["result"] for one in (running, waiting, blocked)] == [101, 102, 104]


def test_a_full_queue_rejects_requests_where_on_full_is_reject() -> None:
    cls = gated()
    with hami.pipe({"backend": "TestGated", "max_queue_size": 2, "on_full": "reject"}) as pipe:
        futures = [pipe.submit({"data": 0})]
        cls.gate.wait_for_arrival()
        futures += [pipe.submit({"data": number}) for number in (1, 2)]
        with pytest.raises(hami.QueueFull) as raised:
            pipe({"data": 3})
        assert str(raised.value).splitlines()[0] == 'node "default" has 2 requests queued (max_queue_size = 2)'
        cls.gate.open()
        assert [future.result(TIMEOUT)["result"] for future in futures] == [100, 101, 102]
    assert "on_full" in refused({"backend": "Identity", "on_full": "wait"})


def dividing(**attributes: Any) -> list[list[Any]]:
    """Register a backend that changes its requests before it may fail, and return the batches that it saw."""
    seen: list[list[Any]] = []

    def forward(batch: list[Any]) -> None:
        seen.append([(item["data"], item.get("touched")) for item in batch])
        for item in batch:
            item["touched"] = True
        for item in batch:
            item["data"], item["result"] = "changed", 100 // item["data"]

    backend(forward, "Divides", max=8, **attributes)
    return seen


def outcomes(config: Any, *data: Any) -> list[Any]:
    """Call the pipe once with a list and return the result of each request or the type of its error."""
    with hami.pipe(config) as pipe:
        requests = [{"data": one} for one in data]
        with pytest.raises(hami.BatchError) as raised:
            pipe(requests)
    errors = {index: type(error) for index, error in raised.value.errors}
    return [request["result"] if "result" in request else errors[index] for index, request in enumerate(requests)]


def test_after_a_failed_batch_each_request_is_restored_and_runs_once_more_alone() -> None:
    seen = dividing()
    assert outcomes("Divides", 1, 0, 5) == [100, ZeroDivisionError, 20]
    assert seen == [[(1, None), (0, None), (5, None)], [(1, None)], [(0, None)], [(5, None)]]


def test_a_single_request_that_fails_is_not_retried() -> None:
    seen = dividing()
    assert "zero" in failure("Divides", ZeroDivisionError, 0)
    assert seen == [[(0, None)]]


def test_a_batch_of_a_class_that_is_not_idempotent_fails_as_a_whole() -> None:
    seen = dividing(idempotent=False)
    assert outcomes("Divides", 0, 5) == [ZeroDivisionError, ZeroDivisionError]
    assert len(seen) == 1


def test_a_batch_is_not_retried_after_a_memory_error() -> None:
    sizes: list[int] = []

    def forward(batch: list[Any]) -> None:
        sizes.append(len(batch))
        raise MemoryError("full")

    backend(forward, "Full", max=8)
    assert outcomes("Full", 1, 2) == [MemoryError, MemoryError]
    assert sizes == [2]


def test_a_batch_fails_as_a_whole_where_on_batch_error_is_fail() -> None:
    seen = dividing()
    assert outcomes({"backend": "Divides", "on_batch_error": "fail"}, 0, 5) == [ZeroDivisionError] * 2
    assert len(seen) == 1


def test_a_keyboard_interrupt_that_a_backend_raises_is_an_error_of_the_request() -> None:

    def interrupt(_: Any) -> Any:
        raise KeyboardInterrupt("stop")

    each(interrupt, "Interrupts")
    with hami.pipe("Interrupts") as pipe, pytest.raises(hami.BackendExit, match="KeyboardInterrupt"):
        pipe({"data": 1})


@pytest.mark.parametrize("where", ["node", "request", "call"])
def test_timeout_expires_running_and_waiting_requests(where: str) -> None:
    """It may be set for the node, in the request or in the call, and counts from submission."""
    cls = gated()
    node = {"timeout": "300ms"} if where == "node" else {}
    keys = {"timeout": 0.3} if where == "request" else {}
    seconds = 0.3 if where == "call" else None
    with hami.pipe({"backend": "TestGated", **node}) as pipe:
        running, waiting = ({"data": number, "result": "stale", **keys} for number in (1, 2))
        futures = [pipe.submit(running, timeout=seconds)]
        cls.gate.wait_for_arrival()
        futures.append(pipe.submit(waiting, timeout=seconds))
        for future in futures:  # the instance stays busy
            with pytest.raises(hami.DeadlineExceeded):
                future.result(TIMEOUT)
        cls.gate.open()
    assert cls.seen == [[1]]
    assert "result" not in running
    assert "result" not in waiting


def test_a_request_has_no_timeout_by_default() -> None:
    cls = gated()
    with hami.pipe("TestGated") as pipe:
        future = pipe.submit({"data": 1})
        cls.gate.wait_for_arrival()
        assert not future.done()
        cls.gate.open()
        assert future.result(TIMEOUT)["result"] == 101


@pytest.mark.parametrize(
    ("batching", "batches"),
    [("greedy", [[0], [1, 2, 3]]), ("adaptive", [[0], [1, 2, 3]]), ("off", [[0], [1], [2], [3]])],
)
def test_batching_selects_which_waiting_requests_run_together(batching: str, batches: list[list[int]]) -> None:
    config = {"backend": "TestGated", "batching": batching}
    assert with_a_busy_instance(config, gated(max=8), [1, 2, 3]) == batches


def test_a_list_of_one_caller_stays_together_where_batching_is_off() -> None:
    with hami.pipe({"backend": "Identity", "max": 8, "batching": "off"}) as pipe:
        pipe([{"data": number} for number in range(4)])
        assert pipe.stats()["default"].batches == 1


def test_batching_takes_no_other_value() -> None:
    with pytest.raises(
        hami.ConfigError, match='"batching" of Batching takes "adaptive", "greedy" or "off", got "always"'
    ):
        hami.pipe({"backend": "Identity", "batching": "always"})
