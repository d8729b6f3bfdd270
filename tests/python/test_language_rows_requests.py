"""Rules of Python backends, requests, outcomes and types: reference/requests.md and reference/types.md."""

from __future__ import annotations

import threading
import traceback
from concurrent.futures import CancelledError
from typing import Any, Optional

import hami
import pytest
from rows import answer, answers, failure, noting, refused, sizing
from running import PATIENCE, backend, each, gated


def test_register_takes_a_class_or_a_name_and_replaces_for_new_pipes() -> None:
    """`@hami.register` (or `@hami.register("Name")`); registering a name again replaces it for new pipes."""

    @hami.register
    class Answers(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = "first"

    hami.register("Named")(Answers)
    with hami.pipe("Answers") as old:
        each(lambda _: "second", "Answers")
        assert (old({"data": 1})["result"], answer("Answers"), answer("Named")) == ("first", "second", "first")


def test_annotated_attributes_are_parameters_except_the_reserved_names() -> None:
    """Annotated class attributes are its declared parameters; string annotations, `Optional`, `list[str]` work."""

    @hami.register
    class Declares(hami.Backend):
        count: int
        names: list[str] = []  # noqa: RUF012
        extra: Optional[str] = None  # noqa: UP045
        rate: float = 0.5
        max: int = 4

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = (self.count, self.names, self.extra, self.rate)

    assert [param["name"] for param in hami.backends(load=True)["Declares"].params] == [
        "count",
        "names",
        "extra",
        "rate",
    ]
    assert answer({"backend": "Declares(4)", "names": ["a", "b"], "rate": "2"}) == (4, ["a", "b"], None, 2.0)


def test_init_once_per_instance_forward_with_a_list_and_close() -> None:
    """`init(self, options)` once per instance; `forward(self, batch)` with a list of requests; `close(self)`."""
    journal = noting("A", max=8)
    assert answers({"backend": "A", "instance_num": 2}, [], []) == [["A"], ["A"]]
    assert sorted(journal) == [("close", "A")] * 2 + [("init", "A")] * 2 + [("run", "A")]


@pytest.mark.parametrize("most", [3, lambda self: 3])
def test_max_and_min_are_ints_or_methods(most: Any) -> None:
    """`max`/`min` are ints or methods."""
    sizes = sizing(max=most)
    assert answers("Sizes", *range(6)) == list(range(6))
    assert sizes == [3, 3]


def test_children_are_counted_and_made_before() -> None:
    """`child_count = (1, 1)` says how many bracket items it takes; they arrive initialised as `self.children`."""
    journal = noting("Inner", max=4)

    @hami.register
    class Outer(hami.Backend):
        child_count = (1, 1)

        def init(self, options: Any) -> None:
            journal.append(("init", f"Outer of {self.children[0].min} to {self.children[0].max}"))

        def forward(self, batch: list[Any]) -> None:
            self.children[0].forward(batch)

    assert answer("Outer[Inner]", []) == ["Inner"]
    assert journal[:2] == [("init", "Inner"), ("init", "Outer of 1 to 4")]
    assert "Outer" in refused("Outer")
    assert "Outer" in refused("Outer[Inner,Inner]")


def test_a_request_left_without_result_has_failed() -> None:
    """A request left without `result` has failed."""
    backend(lambda batch: None, "Silent")
    assert failure("Silent", hami.NoResult) == "the pipeline left no `result`"
    assert failure("S[Silent,Identity]", hami.NoResult) == "Silent left no `result`"


def test_a_request_is_a_dict_with_string_keys() -> None:
    """`data` in, `result` out; other keys pass through."""
    with hami.pipe("Identity") as pipe:
        assert pipe({"data": 1, "other": "kept"}) == {"data": 1, "other": "kept", "result": 1}
        with pytest.raises(hami.DataTypeError, match="the keys of a request must be str"):
            pipe({"data": 1, 2: 3})


def test_data_is_afterwards_what_it_was_and_results_come_once() -> None:
    """The core takes a snapshot and writes results back once; the caller's `data` is afterwards what it was."""
    cls = gated()
    with hami.pipe("S[TestGated,TestGated]") as pipe:
        request = {"data": 1}
        future = pipe.submit(request)
        cls.gate.wait_for_arrival()
        assert request == {"data": 1}
        cls.gate.open()
        assert future.result(PATIENCE) is request
        assert request == {"data": 1, "result": 201}


def test_what_a_cancelled_request_writes_later_is_discarded() -> None:
    """What a timed-out or cancelled request writes later is discarded. A cancelled future raises `CancelledError`."""
    cls = gated()
    with hami.pipe("TestGated") as pipe:
        cancelled, late = {"data": 1}, {"data": 2}
        future = pipe.submit(cancelled)
        cls.gate.wait_for_arrival()
        assert future.cancel()
        with pytest.raises(CancelledError):
            future.result(PATIENCE)
        with pytest.raises(hami.DeadlineExceeded):
            pipe(late, timeout=0.01)
        cls.gate.open()
    assert (cancelled, late) == ({"data": 1}, {"data": 2})


def test_a_failure_raises_the_backends_own_exception() -> None:
    """It raises the backend's own exception (type and traceback kept; node and backend in a note); no `result`."""
    error = LookupError("lost")

    def lose(_: Any) -> Any:
        raise error

    each(lose, "Loses")
    with hami.pipe({"find": {"backend": "Loses"}}) as pipe:
        request = {"data": 1, "result": "stale"}
        with pytest.raises(LookupError) as raised:
            pipe(request)
        assert pipe.stats()["find"].failed == 1
    assert request == {"data": 1}
    assert "lose" in [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    told = "\n".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
    assert told.startswith("lost")
    assert "Loses" in told
    assert 'node "find"' in told


def test_a_list_returns_the_list_and_each_request_fails_by_itself() -> None:
    """`pipe([d1, d2])` returns the list; `hami.BatchError` carries (index, exception), the others have `result`."""
    each(lambda number: 100 // number, "Divides", max=8)
    with hami.pipe("Divides") as pipe:
        good = [{"data": 1}, {"data": 2}]
        assert pipe(good) is good
        mixed = [{"data": 1}, {"data": 0, "result": "stale"}]
        with pytest.raises(hami.BatchError) as raised:
            pipe(mixed)
    assert [(index, type(error)) for index, error in raised.value.errors] == [(1, ZeroDivisionError)]
    assert mixed == [{"data": 1, "result": 100}, {"data": 0}]


def test_an_event_makes_the_call_asynchronous() -> None:
    """`event`: it returns at once, the event completes with the outcome. Anything else under that key: an error."""
    cls = gated()
    with hami.pipe("TestGated") as pipe:
        request = {"data": 1, "event": hami.Event()}
        assert pipe(request) is request
        cls.gate.wait_for_arrival()
        assert not request["event"].done()
        cls.gate.open()
        assert request["event"].wait(PATIENCE)
        assert (request["event"].value(), request["result"]) == (101, 101)
        with pytest.raises(hami.DataTypeError):
            pipe({"data": 1, "event": "yes"})


@pytest.mark.parametrize(
    "value", [b"x" * 5000, "text", 3, 2**80, 0.5, True, None, [1, "a"], {"k": [1]}, (1, 2), object]
)
def test_values_keep_their_python_type(value: Any) -> None:
    """Values keep their Python type on the way through; other objects travel untouched."""
    result = answer("S[Identity,Identity]", value)
    assert type(result) is type(value)
    assert result == value
    thing = object()
    assert answer("S[Identity,Identity]", thing) is thing


def test_arrays_go_without_a_copy() -> None:
    """Arrays go by DLPack without a copy."""
    numpy = pytest.importorskip("numpy", reason="the arrays of this test come from numpy")
    array = numpy.arange(6.0)
    assert answer("Identity", array) is array


def test_data_that_a_backend_cannot_take_is_a_data_type_error() -> None:
    """A backend that cannot take `data`: `DataTypeError` (a `hami.Error` and a `TypeError`) that says what it takes."""
    assert "CatTensor" in failure("CatTensor", hami.DataTypeError, "no tensor")
    assert issubclass(hami.DataTypeError, hami.Error)
    assert issubclass(hami.DataTypeError, TypeError)


def test_close_stops_intake_and_fails_what_it_cannot_finish() -> None:
    """`close(timeout=10)` stops intake, fails what is queued (`PipeClosed`) and names backends that do not return."""
    cls = gated()
    pipe = hami.pipe("TestGated")
    futures = [pipe.submit({"data": number}) for number in (1, 2)]
    cls.gate.wait_for_arrival()
    with pytest.warns(RuntimeWarning, match="TestGated"):
        pipe.close(timeout=0.01)
    for future in futures:
        with pytest.raises(hami.PipeClosed):
            future.result(0)
    with pytest.raises(hami.PipeClosed):
        pipe({"data": 3})
    cls.gate.open()


def test_errors_have_their_bases() -> None:
    """Errors: `hami.Error` → `ConfigError`, `BackendNotFound`, `PluginError`, `DataTypeError`, `RequestError` → …"""
    for error in (hami.ConfigError, hami.BackendNotFound, hami.PluginError, hami.DataTypeError, hami.RequestError):
        assert issubclass(error, hami.Error)
    for error in (hami.NoResult, hami.QueueFull, hami.DeadlineExceeded, hami.PipeClosed, hami.ReentrantCall):
        assert issubclass(error, hami.RequestError)
    assert issubclass(hami.DeadlineExceeded, TimeoutError)
    assert issubclass(hami.BatchError, hami.Error)
    for error in (hami.NotFound, hami.AlreadyExists):
        assert issubclass(error, hami.Error)
        assert issubclass(error, KeyError)


def test_event_waits_calls_back_and_is_awaitable() -> None:
    """`Event` (wait with timeout, callbacks, exception; awaitable)."""
    import asyncio

    event, told = hami.Event(), threading.Event()
    event.add_done_callback(lambda _: told.set())
    assert not event.wait(timeout=0)
    assert event.notify(3)
    assert told.wait(PATIENCE)
    assert not event.fail(ValueError("late"))

    async def main() -> Any:
        return await event

    assert (event.value(), event.exception(), asyncio.run(main())) == (3, None, 3)
    failed = hami.Event()
    failed.fail(ValueError("no"))
    assert isinstance(failed.exception(), ValueError)


def test_queue_is_bounded_and_the_pipes_default_queue_needs_no_name() -> None:
    """`Queue` (bounded; a default queue per pipe)."""
    queue = hami.Queue(max=1)
    assert (queue.try_put(1), queue.try_put(2), queue.get(0)) == (True, False, 1)
    assert answer("S[Send,Observer]", 4) == 4
    assert answer("S[Send,Observer(default)]", 5) == 5


def test_typed_dict_is_checked() -> None:
    """`TypedDict` (declared keys and types, checked)."""

    class Page(hami.TypedDict):
        data: bytes

    page = Page(data=b"x")
    with pytest.raises(hami.DataTypeError):
        page["data"] = "text"
    with hami.pipe("Identity") as pipe:
        assert pipe(page) is page


def test_request_store_has_two_levels() -> None:
    """`RequestStore` (alias `KVStorage`): `req_id → key → value`; NotFound, AlreadyExists, None if only the key is."""
    assert hami.KVStorage is hami.RequestStore
    store = hami.RequestStore()
    store.create("r")
    store.insert("r", "k", 1)
    store.insert_or_assign("r", 7, [2])
    assert (store.get("r", "k"), store.get("r", "none"), store.at("r", 7), store.size()) == (1, None, [2], 1)
    assert sorted(store.keys("r"), key=str) == [7, "k"]
    with pytest.raises(hami.AlreadyExists):
        store.create("r")
    with pytest.raises(hami.AlreadyExists):
        store.insert("r", "k", 2)
    with pytest.raises(hami.NotFound):
        store.get("other", "k")
    assert (store.take("r", "k"), store.contains("r", "k"), store.erase("r", 7), store.remove("r")) == (
        1,
        False,
        True,
        True,
    )
