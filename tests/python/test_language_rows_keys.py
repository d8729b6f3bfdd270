"""Rules of the keys that schedule a node, in the order of reference/configuration.md, "Keys of a node"."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hami
import pytest
from rows import answer, answers, failure, refused, sizing
from running import PATIENCE, backend, each, gated


def with_a_busy_instance(config: dict[str, Any], cls: Any, *batches: list[int]) -> list[list[int]]:
    """Give the only instance request 0; submit the others meanwhile; return the batches that it saw."""
    with hami.pipe(config) as pipe:
        futures = [pipe.submit({"data": 0})]
        cls.gate.wait_for_arrival()
        futures += [pipe.submit({"data": number}) for batch in batches for number in batch]
        cls.gate.open()
        for future in futures:
            future.result(PATIENCE)
    return cls.seen


def test_backend_is_required_and_an_expression() -> None:
    """`backend`, required, expression."""
    assert "the node has no backend" in refused({"node": {"max": 1}})
    assert answer({"backend": "S[Identity,Identity]"}, 3) == 3


@pytest.mark.parametrize("number", [1, 3])
def test_instance_num_copies_run_in_parallel(number: int) -> None:
    """`instance_num`, 1: copies that run in parallel."""
    cls = gated()
    config = {"backend": "TestGated", **({"instance_num": number} if number > 1 else {})}
    with hami.pipe(config) as pipe:
        futures = [pipe.submit({"data": data}) for data in range(4)]
        for _ in range(number):
            cls.gate.wait_for_arrival()
        assert len(cls.seen) == number
        cls.gate.open()
        assert [future.result(PATIENCE)["result"] for future in futures] == [100, 101, 102, 103]


def test_max_is_from_the_backend_and_counts_items() -> None:
    """Batch range in items (`request_size` of a request, 1 if absent), from the backend."""
    sizes = sizing(max=4)
    assert answers("Sizes", *range(8)) == list(range(8))
    assert sizes == [4, 4]
    sizes.clear()
    with hami.pipe("Sizes") as pipe:
        pipe([{"data": number, "request_size": size} for number, size in enumerate((3, 1, 2, 2))])
    assert sizes == [2, 2]


def test_max_of_a_class_that_declares_no_range_is_the_nodes() -> None:
    """A class that declares no range takes 1 … ∞ and the node then gathers at most `max`, default 1."""
    assert with_a_busy_instance({"backend": "TestGated"}, gated(), [1, 2, 3]) == [[0], [1], [2], [3]]
    assert with_a_busy_instance({"backend": "TestGated", "max": 2}, gated(), [1, 2, 3]) == [[0], [1, 2], [3]]


def test_max_above_a_declared_range_is_an_error() -> None:
    """`max` above a declared range is a ConfigError."""
    sizes = sizing(max=4)
    assert 'max is 5; the backend of node "default" takes at most 4' in refused({"backend": "Sizes", "max": 5})
    assert answers({"backend": "Sizes", "max": 2}, 1, 2, 3, 4) == [1, 2, 3, 4]
    assert sizes == [2, 2]


def test_max_of_a_container_is_that_of_its_narrowest_child() -> None:
    """That of its child with the smallest declared `max` > 1; children of `max` 1 are called item by item."""
    wide, narrow, single = (sizing(name, max=most) for name, most in (("Wide", 8), ("Narrow", 4), ("Single", 1)))
    assert answers("S[Wide,Single,Narrow]", *range(8)) == list(range(8))
    assert (wide, narrow, single) == ([4, 4], [4, 4], [1] * 8)


def test_batching_timeout_0_still_merges_what_waits() -> None:
    """With 0, requests that wait when an instance becomes idle form one batch."""
    assert with_a_busy_instance({"backend": "TestGated"}, gated(max=8), [1, 2, 3]) == [[0], [1, 2, 3]]


def test_batching_timeout_a_lone_request_never_waits_while_an_instance_is_idle() -> None:
    """A lone request never waits while an instance is idle, once `min` is met."""
    sizes = sizing(max=4)
    assert answer({"backend": "Sizes", "batching_timeout": "1h"}, 5) == 5
    assert sizes == [1]


def test_batching_timeout_is_how_long_several_wait_for_more() -> None:
    """The maximum time that a queued request is held so that others can join its batch."""
    sizes = sizing(max=4)
    begin = time.monotonic()
    assert answers({"backend": "Sizes", "batching_timeout": "20ms"}, 1, 2, 3) == [1, 2, 3]
    assert time.monotonic() - begin >= 0.02
    assert answers({"backend": "Sizes", "batching_timeout": "1h"}, 1, 2, 3, 4) == [1, 2, 3, 4]
    assert sizes == [3, 4]


def test_batching_timeout_below_min_a_request_waits_for_company() -> None:
    """Below `min` a request waits for `batching_timeout`; others that arrive complete the batch."""
    sizes = sizing(max=2)
    config = {"backend": "Sizes", "min": 2, "batching_timeout": "1h"}
    with hami.pipe(config) as pipe:
        first, second = pipe.submit({"data": 1}), pipe.submit({"data": 2})
        assert [first.result(PATIENCE)["result"], second.result(PATIENCE)["result"]] == [1, 2]
    assert sizes == [2]


def test_batching_timeout_below_min_a_request_then_fails() -> None:
    """Below `min` it waits `batching_timeout`, then fails."""
    sizes = sizing(max=4)
    begin = time.monotonic()
    told = failure({"backend": "Sizes", "min": 2, "batching_timeout": 20}, hami.RequestError, 1)
    assert time.monotonic() - begin >= 0.02
    assert told == 'node "default" takes at least 2 items; only 1 arrived within batching_timeout'
    assert sizes == []


def test_queue_max_blocks_the_caller() -> None:
    """Bounded; `block` the caller."""
    cls = gated()
    with hami.pipe({"backend": "TestGated", "max_queue_size": 1}) as pipe, ThreadPoolExecutor() as threads:
        running = pipe.submit({"data": 1})
        cls.gate.wait_for_arrival()
        waiting = pipe.submit({"data": 2})
        with pytest.raises(hami.DeadlineExceeded, match="had a full queue"):
            pipe({"data": 3}, timeout=0.01)
        blocked = threads.submit(pipe, {"data": 4})
        assert not blocked.done()
        cls.gate.open()
        assert [one.result(PATIENCE)["result"] for one in (running, waiting, blocked)] == [101, 102, 104]


def test_on_full_rejects() -> None:
    """Or `reject` with `QueueFull`."""
    cls = gated()
    with hami.pipe({"backend": "TestGated", "max_queue_size": 2, "on_full": "reject"}) as pipe:
        futures = [pipe.submit({"data": 0})]
        cls.gate.wait_for_arrival()
        futures += [pipe.submit({"data": number}) for number in (1, 2)]
        with pytest.raises(hami.QueueFull):
            pipe({"data": 3})
        cls.gate.open()
        assert [future.result(PATIENCE)["result"] for future in futures] == [100, 101, 102]
    assert "on_full" in refused({"backend": "Identity", "on_full": "wait"})


def dividing(**attributes: Any) -> list[list[Any]]:
    """Register a backend that changes its request before it may fail, and return the batches that it saw."""
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
    """Ask once with a list; give each request's result or the type of its error."""
    with hami.pipe(config) as pipe:
        requests = [{"data": one} for one in data]
        with pytest.raises(hami.BatchError) as raised:
            pipe(requests)
    errors = {index: type(error) for index, error in raised.value.errors}
    return [request["result"] if "result" in request else errors[index] for index, request in enumerate(requests)]


def test_on_batch_error_isolates_what_was_restored() -> None:
    """Every request without an outcome is restored to what it was when it entered and tried once more alone."""
    seen = dividing()
    assert outcomes("Divides", 1, 0, 5) == [100, ZeroDivisionError, 20]
    assert seen == [[(1, None), (0, None), (5, None)], [(1, None)], [(0, None)], [(5, None)]]


def test_on_batch_error_of_a_single_request_is_its_own() -> None:
    """A backend threw on a batch of n > 1: one request alone is not tried again."""
    seen = dividing()
    assert "zero" in failure("Divides", ZeroDivisionError, 0)
    assert seen == [[(0, None)]]


def test_on_batch_error_where_the_class_is_not_retry_safe_the_batch_fails() -> None:
    """Not where the class says `idempotent = False`: then the batch fails."""
    seen = dividing(idempotent=False)
    assert outcomes("Divides", 0, 5) == [ZeroDivisionError, ZeroDivisionError]
    assert len(seen) == 1


def test_on_batch_error_out_of_memory_is_final() -> None:
    """Or the error is marked final (out of memory, for example)."""
    sizes: list[int] = []

    def forward(batch: list[Any]) -> None:
        sizes.append(len(batch))
        raise MemoryError("full")

    backend(forward, "Full", max=8)
    assert outcomes("Full", 1, 2) == [MemoryError, MemoryError]
    assert sizes == [2]


def test_on_batch_error_fail() -> None:
    """`fail`: always fails."""
    seen = dividing()
    assert outcomes({"backend": "Divides", "on_batch_error": "fail"}, 0, 5) == [ZeroDivisionError] * 2
    assert len(seen) == 1


def test_on_batch_error_keyboard_interrupt_propagates() -> None:
    """KeyboardInterrupt always propagates."""

    def interrupt(_: Any) -> Any:
        raise KeyboardInterrupt("stop")

    each(interrupt, "Interrupts")
    with hami.pipe("Interrupts") as pipe, pytest.raises(KeyboardInterrupt):
        pipe({"data": 1})


@pytest.mark.parametrize("where", ["node", "request", "call"])
def test_timeout_expires_running_and_waiting_requests(where: str) -> None:
    """Per request, from submit, as node key or request key; `pipe(d, timeout=seconds)`. Waiting ones expire too."""
    cls = gated()
    node = {"timeout": "300ms"} if where == "node" else {}
    keys = {"timeout": 0.3} if where == "request" else {}
    seconds = 0.3 if where == "call" else None
    with hami.pipe({"backend": "TestGated", **node}) as pipe:
        running, waiting = ({"data": number, "result": "stale", **keys} for number in (1, 2))
        futures = [pipe.submit(running, timeout=seconds)]
        cls.gate.wait_for_arrival()
        futures.append(pipe.submit(waiting, timeout=seconds))
        for future in futures:  # the instance is busy all the while
            with pytest.raises(hami.DeadlineExceeded):
                future.result(PATIENCE)
        cls.gate.open()
    assert cls.seen == [[1]]
    assert "result" not in running
    assert "result" not in waiting


def test_timeout_none_waits() -> None:
    """`timeout`, none."""
    cls = gated()
    with hami.pipe("TestGated") as pipe:
        future = pipe.submit({"data": 1})
        cls.gate.wait_for_arrival()
        assert not future.done()
        cls.gate.open()
        assert future.result(PATIENCE)["result"] == 101
