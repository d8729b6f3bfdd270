"""scatter and scattered: one value for a whole batch, split when a request is read."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import hami
import numpy as np
import pytest
from hami.batching import scatter, scattered
from running import TIMEOUT


class Parts(Sequence[Any]):
    """A sequence that records which parts were taken."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values
        self.taken: list[int] = []

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        self.taken.append(index)
        value = self.values[index]
        if isinstance(value, Exception):
            raise value
        return value


def arrays(count: int) -> list[Any]:
    return [np.full(2, index, dtype=np.float32) for index in range(count)]


@pytest.fixture
def steps() -> Iterator[Callable[..., hami.Pipe]]:
    """Return a function that makes a pipe of functions, each the `forward` of one backend in S."""
    pipes = []

    def make(*forwards: Any, then: str = "") -> hami.Pipe:
        names = []
        for number, function in enumerate(forwards):
            names.append(f"ScatterStep{number}")
            body = {"forward": lambda _, batch, run=function: run(batch), "max": 8}
            hami.register(names[-1])(type(names[-1], (hami.Backend,), body))
        pipes.append(hami.pipe({"backend": f"S[{','.join(names)}{then}]", "max": 8}))
        return pipes[-1]

    yield make
    for pipe in pipes:
        pipe.close()


def call(pipe: hami.Pipe, count: int = 3) -> list[dict[str, Any]]:
    requests: list[dict[str, Any]] = [{"data": index} for index in range(count)]
    pipe(requests)
    return requests


def keep_data(batch: list[Any]) -> None:
    for item in batch:
        item["result"] = item["data"]


def test_each_request_has_its_part(steps: Any) -> None:
    pipe = steps(lambda batch: scatter(batch, np.arange(len(batch)) * 10.0))
    assert [request["result"] for request in call(pipe)] == [0.0, 10.0, 20.0]


def test_a_part_is_taken_once_and_only_when_it_is_read(steps: Any) -> None:
    parts = Parts(arrays(3))
    seen = []

    def look(batch: list[Any]) -> None:
        assert parts.taken == []
        seen.extend([batch[1]["data"], batch[1]["data"], batch[0]["data"]])
        keep_data(batch)

    requests = call(steps(lambda batch: scatter(batch, parts), look))
    assert parts.taken == [1, 0, 2]
    assert seen[0] is seen[1] is requests[1]["result"] is parts.values[1]


def test_the_next_backend_gets_the_whole_value_without_taking_parts(steps: Any) -> None:
    parts, found = Parts(arrays(3)), []

    def next_step(batch: list[Any]) -> None:
        found.append(scattered(batch))
        scatter(batch, np.ones(len(batch)))

    call(steps(lambda batch: scatter(batch, parts), next_step))
    assert found == [parts]
    assert parts.taken == []


def test_scatter_may_set_any_key(steps: Any) -> None:
    parts, found = Parts(arrays(3)), []

    def give(batch: list[Any]) -> None:
        scatter(batch, parts, key="boxes")
        keep_data(batch)

    def take(batch: list[Any]) -> None:
        found.extend(
            [
                scattered(batch, "boxes"),
                scattered(batch),
                scattered(batch, key="none"),
            ]
        )
        keep_data(batch)

    requests = call(steps(give, take))
    assert found == [parts, None, None]
    assert [request["boxes"] is value for request, value in zip(requests, parts.values, strict=True)] == [True] * 3


@pytest.mark.parametrize(
    "change",
    [
        lambda batch: batch.reverse(),
        lambda batch: batch.pop(),
        lambda batch: batch.append(batch[0]),
        lambda batch: batch.clear(),
        lambda batch: batch[2]["data"],  # a reader may change it
        lambda batch: batch[1].update({"data": np.zeros(2)}),
        lambda batch: scatter(batch[:1], np.zeros((1, 2)), key="data"),
    ],
)
def test_scattered_returns_none_if_the_batch_has_changed_or_a_part_was_read(steps: Any, change: Any) -> None:
    found = []

    def take(batch: list[Any]) -> None:
        all_of_them = list(batch)
        assert scattered(batch) is not None
        change(batch)
        found.append(scattered(batch))
        keep_data(all_of_them)

    call(steps(lambda batch: scatter(batch, arrays(3)), take))
    assert found == [None]


def some_broken(batch: list[Any]) -> None:
    broken = {1: ValueError("no such part"), 2: "a text"}
    scatter(batch, Parts([broken.get(item["data"], np.ones(2)) for item in batch]))


@pytest.mark.parametrize("more", [(), (keep_data,)], ids=["read by the caller", "read by the next backend"])
def test_a_part_that_cannot_be_read_fails_only_its_request(steps: Any, more: Any) -> None:
    pipe = steps(some_broken, *more)
    requests: list[dict[str, Any]] = [{"data": 0}, {"data": 1}, {"data": 2}]
    with pytest.raises(hami.BatchError) as raised:
        pipe(requests)
    (first, missing), (second, text) = raised.value.errors
    assert (first, type(missing), second, type(text)) == (1, ValueError, 2, hami.DataTypeError)
    assert str(text).startswith("a part given to hami.batching.scatter must be an array or a tensor, got str")
    assert ["result" in request for request in requests] == [True, False, False]
    assert list(call(pipe, 1)[0]["result"]) == [1, 1]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (np.ones(2), "scatter() takes a sequence with one part for each of 3 requests, got numpy.ndarray of length 2"),
        (5, "scatter() takes a sequence with one part for each of 3 requests, got int"),
        ({1, 2, 3}, "scatter() takes a sequence with one part for each of 3 requests, got set"),
    ],
)
def test_scatter_needs_a_sequence_with_one_part_per_request(steps: Any, parts: Any, message: str) -> None:
    messages = []

    def give(batch: list[Any]) -> None:
        with pytest.raises(hami.DataTypeError) as raised:
            scatter(batch, parts)
        messages.append(str(raised.value))
        assert "result" not in batch[0]
        keep_data(batch)

    call(steps(give))
    assert messages == [message]


def test_plain_dicts_get_their_parts_at_once() -> None:
    batch: list[Any] = [{}, {}]
    scatter(batch, np.eye(2), key="row")
    assert [list(item["row"]) for item in batch] == [[1, 0], [0, 1]]
    assert scattered(batch, key="row") is None


def test_scatter_and_scattered_need_requests() -> None:
    with pytest.raises(hami.DataTypeError, match=r"^scatter\(\) takes the requests of a batch, got None$"):
        scatter([None], [1.0])  # type: ignore[list-item]
    with pytest.raises(hami.DataTypeError, match=r"^scattered\(\) takes the requests of a batch, got 1$"):
        scattered([1])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        scatter({}, [])  # type: ignore[arg-type]


def test_backends_of_the_core_read_a_part_as_a_tensor(steps: Any) -> None:
    pipe = steps(lambda batch: scatter(batch, np.eye(3, dtype=np.float32)), then=",ArgMaxTensor")
    assert [int(hami.to_numpy(request["result"])) for request in call(pipe)] == [0, 1, 2]


def test_a_backend_of_the_core_that_cannot_read_a_part_names_its_type(steps: Any) -> None:
    pipe = steps(lambda batch: scatter(batch, [3 + 4j] * len(batch)), then=",ArgMaxTensor")
    with pytest.raises(hami.DataTypeError, match="`data` is of type complex"):
        pipe({"data": 0})


def test_a_task_and_an_event_get_their_parts(steps: Any) -> None:
    pipe = steps(lambda batch: scatter(batch, arrays(len(batch))))
    event = hami.Event()
    pipe({"data": 0, "event": event})
    assert event.wait(TIMEOUT)
    assert list(event.value()) == [0, 0]

    async def tasks() -> list[dict[str, Any]]:
        return await asyncio.gather(*(pipe.acall({"data": 0}) for _ in range(5)))

    assert [request["result"].shape for request in asyncio.run(tasks())] == [(2,)] * 5


def test_a_list_may_contain_any_objects(steps: Any) -> None:
    found = []

    def take(batch: list[Any]) -> None:
        found.append(scattered(batch))
        keep_data(batch)

    labels = ["cat", 7, None]
    pipe = steps(lambda batch: scatter(batch, labels if len(batch) == 3 else ("dog",)), take)
    assert [request["result"] for request in call(pipe)] == labels
    assert found == [None]
    assert [
        request["result"] for request in call(steps(lambda batch: scatter(batch, ("dog",)), then=",Identity"), 1)
    ] == ["dog"]


def test_the_scattered_value_is_freed_with_its_last_part(steps: Any) -> None:
    gone: list[weakref.ref[Parts]] = []

    def give(batch: list[Any]) -> None:
        parts = Parts(arrays(len(batch)))
        gone.append(weakref.ref(parts))
        scatter(batch, parts)

    pipe = steps(give)
    requests = call(pipe)
    pipe.close()
    del requests
    gc.collect()
    assert gone[0]() is None


def test_two_concurrent_readers_get_the_same_part() -> None:
    both_take, seen = threading.Barrier(2), []

    class NewObjects(Parts):
        def __getitem__(self, index: Any) -> Any:
            both_take.wait(TIMEOUT)
            return np.zeros(2)

    @hami.register
    class ScatterStart(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            scatter(batch, NewObjects([0]))

    @hami.register
    class ScatterBranch(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            seen.append(batch[0]["data"])
            batch[0]["result"] = None

    nodes = {
        "start": {"backend": "ScatterStart", "next": "first, second"},
        "first": {"backend": "ScatterBranch"},
        "second": {"backend": "ScatterBranch"},
    }
    with hami.pipe(nodes) as pipe:
        pipe({"data": 0}, timeout=TIMEOUT)
    assert seen[0] is seen[1]
