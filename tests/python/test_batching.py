"""hami.batching: groups keep the order of the batch, respect the maximum, and a bad request fails alone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import hami
import pytest
from hami.batching import fail_request, group_requests


def run(
    requests: list[dict[str, Any]],
    read: Callable[[Any], Any] = lambda request: request["data"],
    key: Callable[[Any], Any] | None = None,
    max_items: int | None = None,
) -> tuple[list[Any], list[list[Any]]]:
    """Run one batch, in which every request gets the values of its group.

    Returns the outcome of each request, and the values of each group.
    """
    seen: list[list[Any]] = []

    @hami.register("Grouped")
    class Grouped(hami.Backend):
        """Gives each request the values of its group."""

        idempotent = False  # a failed batch is not run again

        def forward(self, batch: list[Any]) -> None:
            for group, values in group_requests(batch, read, key, max_items=max_items):
                seen.append(values)
                for request in group:
                    request["result"] = values

    with hami.pipe({"node": {"backend": "Grouped", "max": 100, "batching": "greedy"}}) as pipe:
        try:
            outcomes: list[Any] = [request["result"] for request in pipe(requests)]
        except hami.BatchError as error:
            failed = dict(error.errors)
            outcomes = [failed.get(index, request.get("result")) for index, request in enumerate(requests)]
    return outcomes, seen


def data(*values: Any) -> list[dict[str, Any]]:
    return [{"data": value} for value in values]


def test_requests_with_equal_keys_form_a_group_in_the_order_of_the_batch() -> None:
    outcomes, seen = run(data("b1", "a1", "b2", "a2", "c1"), key=lambda value: value[0])
    assert seen == [["b1", "b2"], ["a1", "a2"], ["c1"]]
    assert outcomes == [["b1", "b2"], ["a1", "a2"], ["b1", "b2"], ["a1", "a2"], ["c1"]]


def test_without_a_key_the_batch_is_one_group() -> None:
    assert run(data(1, 2.0, "c"))[1] == [[1, 2.0, "c"]]


def test_a_group_has_at_most_max_items() -> None:
    requests = data("a1", "b1", "a2", "a3", "b2", "a4", "a5")
    assert run(requests, key=lambda value: value[0], max_items=2)[1] == [
        ["a1", "a2"],
        ["b1", "b2"],
        ["a3", "a4"],
        ["a5"],
    ]


def test_a_request_counts_as_many_items_as_its_request_size() -> None:
    requests = data("a", "b", "c", "d", "e")
    for request, size in zip(requests, (1, 2, 2, 5, 1), strict=True):
        request["request_size"] = size
    assert run(requests, max_items=3)[1] == [["a", "b"], ["c"], ["d"], ["e"]]


@pytest.mark.parametrize("step", ["read", "key"])
@pytest.mark.parametrize(
    "error", [hami.RequestError("not good"), hami.DataTypeError("not good"), ValueError("not good")]
)
def test_a_request_that_cannot_be_read_fails_alone(step: str, error: Exception) -> None:
    def check(value: Any) -> Any:
        if value == "bad":
            raise error
        return value

    if step == "read":
        outcomes, seen = run(data("x", "bad", "x"), read=lambda item: check(item["data"]), key=lambda value: value)
    else:
        outcomes, seen = run(data("x", "bad", "x"), key=check)
    assert seen == [["x", "x"]]
    assert outcomes[0] == outcomes[2] == ["x", "x"]
    assert type(outcomes[1]) is type(error)
    assert str(outcomes[1]).startswith("not good")


def test_a_key_that_is_not_hashable_fails_its_request() -> None:
    outcomes, seen = run(data("x", ["y"]), key=lambda value: value)
    assert seen == [["x"]]
    assert isinstance(outcomes[1], TypeError)


def test_no_valid_request_is_no_group() -> None:
    outcomes, seen = run(data(1, 2), read=lambda item: item["absent"])
    assert seen == []
    assert [type(outcome) for outcome in outcomes] == [KeyError, KeyError]


class Recorded(dict[str, Any]):
    """A request outside a pipe."""

    error: BaseException

    def fail(self, error: BaseException) -> None:
        self.error = error


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt()])
def test_what_concerns_the_whole_process_leaves_the_function(error: BaseException) -> None:
    def read(request: Any) -> Any:
        raise error

    with pytest.raises(type(error)):
        group_requests([Recorded()], read)  # type: ignore[list-item]


def test_a_maximum_below_one_is_an_error() -> None:
    with pytest.raises(ValueError, match="max_items must be at least 1, got 0"):
        group_requests([], lambda request: None, max_items=0)


class Large:
    """Stands for an array of the batch."""


def test_a_kept_error_does_not_keep_the_values_of_the_batch() -> None:
    def read(request: Any) -> Large:
        large = Large()
        made.append(weakref.ref(large))
        if request["data"] == "bad":
            try:
                raise ValueError
            except ValueError as error:
                raise hami.RequestError("not good") from error
        return large

    made: list[weakref.ref[Large]] = []
    bad = Recorded(data="bad")
    group_requests([Recorded(data="good"), bad], read)  # type: ignore[list-item]
    gc.collect()
    assert [each() for each in made] == [None, None]
    assert isinstance(bad.error.__cause__, ValueError)


def test_the_traceback_of_a_mistake_in_the_backend_is_kept() -> None:
    bad = Recorded()
    group_requests([bad], lambda request: request["absent"])  # type: ignore[list-item]
    assert isinstance(bad.error, KeyError)
    assert bad.error.__traceback__ is not None


def test_fail_request_drops_the_traceback() -> None:
    try:
        raise hami.RequestError("not good")
    except hami.RequestError as error:
        request = Recorded()
        fail_request(request, error)  # type: ignore[arg-type]
    assert str(request.error) == "not good"
    assert request.error.__traceback__ is None


def test_fail_request_ends_if_the_causes_are_a_cycle() -> None:
    first, second = hami.RequestError("first"), ValueError("second")
    first.__cause__, second.__context__ = second, first
    request = Recorded()
    fail_request(request, first)  # type: ignore[arg-type]
    assert request.error is first
