"""Greenlets: calls of gevent's go to its thread pool, and a switch inside the core is an error."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import Any

import hami
import pytest
from running import backend, check_clean, each, run_script

PROLOGUE = """
    import sys
    from gevent import monkey
    if "patched" in sys.argv:
        monkey.patch_all()
    import gevent, hami
    allocate_lock = monkey.get_original("_thread", "allocate_lock")  # waits on a thread, not in a hub
    apply = gevent.get_hub().threadpool.apply

    def all_values(greenlets):
        gevent.joinall(greenlets, raise_error=True)
        return [greenlet.value for greenlet in greenlets]

    def error_of(call):
        try:
            call()
        except hami.ReentrantCall as error:
            return str(error)
"""


@pytest.fixture(params=["patched", "unpatched"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def check(script: str, mode: str) -> None:
    if importlib.util.find_spec("gevent") is None:
        pytest.skip("gevent is not installed")
    check_clean(run_script(PROLOGUE + script, mode), "good")


def test_other_greenlets_run_while_calls_wait_in_the_thread_pool(mode: str) -> None:
    """The backend returns only after another greenlet has opened the gate."""
    check(
        """
    gate = allocate_lock()
    gate.acquire()

    @hami.register
    class Gated(hami.Backend):
        def forward(self, batch):
            with gate:
                for item in batch:
                    item["result"] = item["data"] + 1

    pipe = apply(hami.pipe, ("Gated",))
    requests = [{"data": number} for number in range(5)]
    calls = [gevent.spawn(apply, pipe, (request,)) for request in requests]
    calls.append(gevent.spawn(apply, pipe, ([{"data": 5}],)))
    gevent.spawn(gate.release)
    assert all_values(calls) == [*requests, [{"data": 5, "result": 6}]]
    assert [request["result"] for request in requests] == [1, 2, 3, 4, 5]
    apply(pipe.close)
    print("good")
    """,
        mode,
    )


def test_a_call_in_a_greenlet_of_a_hub_names_the_thread_pool(mode: str) -> None:
    check(
        """
    with hami.pipe("Identity") as pipe:  # in the main greenlet, which may wait
        assert pipe({"data": 1})["result"] == 1
        calls = [
            lambda: pipe({"data": 1}),
            lambda: pipe([{"data": 1}]),
            lambda: pipe.submit({"data": 1}),
            lambda: list(pipe.map([{"data": 1}])),
            lambda: hami.pipe("Identity"),
            lambda: pipe.replace("Identity"),
            lambda: pipe.close(),
        ]
        for error in all_values([gevent.spawn(error_of, call) for call in calls]):
            assert error.endswith("with gevent.get_hub().threadpool.apply(pipe, (request,))"), error
        assert error == (
            "a call of HAMi in a greenlet would block the other greenlets of its thread; "
            "run the call in another thread, with gevent.get_hub().threadpool.apply(pipe, (request,))"
        )
        event = hami.Event()
        all_values([gevent.spawn(event.notify, 1)])
        assert event.value() == 1
        assert pipe({"data": 2})["result"] == 2
    print("good")
    """,
        mode,
    )


def test_a_pipe_that_a_greenlet_drops_is_closed_elsewhere(mode: str) -> None:
    check(
        """
    closed = allocate_lock()
    closed.acquire()

    @hami.register
    class Closes(hami.Backend):
        def forward(self, batch): ...
        def close(self):
            closed.release()

    pipes = [hami.pipe("Closes")]
    all_values([gevent.spawn(pipes.clear)])
    assert closed.acquire(timeout=60)
    print("good")
    """,
        mode,
    )


def test_a_future_is_rejected_where_gevent_has_patched_its_locks() -> None:
    check(
        """
    with hami.pipe("Identity") as pipe:
        assert "locks of futures" in error_of(lambda: pipe.submit({"data": 1}))
        assert "locks of futures" in apply(error_of, (lambda: pipe.submit({"data": 1}),))
    print("good")
    """,
        "patched",
    )


def test_a_future_is_complete_in_a_program_that_is_not_patched() -> None:
    check(
        """
    with hami.pipe("Identity") as pipe:
        results = lambda: [request["result"] for request in pipe.map({"data": number} for number in range(3))]
        assert results() == [0, 1, 2]
        assert apply(results) == [0, 1, 2]
    print("good")
    """,
        "unpatched",
    )


def test_a_greenlet_without_a_hub_may_call() -> None:
    """As those of SQLAlchemy, which run synchronous code beside the loop of asyncio."""
    greenlet = pytest.importorskip("greenlet", reason="greenlet is not installed")
    with hami.pipe("Identity") as pipe:

        async def main() -> Any:
            synchronous = greenlet.greenlet(lambda: [pipe({"data": 1}), pipe.submit({"data": 2}).result()])
            return synchronous.switch(), await pipe.acall({"data": 3})

        before, after = asyncio.run(main())
    assert [request["result"] for request in (*before, after)] == [1, 2, 3]


@pytest.mark.parametrize("attributes", [{"thread": "serialized"}, {"thread": "concurrent", "non_blocking": True}])
def test_another_greenlet_cannot_use_the_core_while_one_is_switched_out_inside_it(attributes: dict[str, Any]) -> None:
    greenlet = pytest.importorskip("greenlet", reason="greenlet is not installed")
    main = greenlet.getcurrent()
    errors: list[BaseException | None] = []
    others: list[Any] = []

    def switch(_: Any) -> None:
        if others:
            others.pop().switch()

    def use(function: Any) -> None:
        try:
            function()
            errors.append(None)
        except hami.Error as error:
            errors.append(error)

    each(switch, "TestSwitches", **attributes)
    event = hami.Event()
    with hami.pipe({"backend": "TestSwitches", "instance_num": 2}) as pipe, hami.pipe("Identity") as other:
        uses = [
            lambda: pipe({"data": 2}),
            lambda: pipe([{"data": 2}]),
            lambda: other({"data": 2}),
            lambda: other.submit({"data": 2}),
            lambda: hami.pipe("Identity"),
            lambda: other.close(),
            lambda: event.notify(),
        ]

        def second() -> None:
            for function in uses:
                use(function)
            main.switch()  # inside the backend of the first request
            for function in uses[:4]:
                use(function)

        others.append(greenlet.greenlet(second))
        second_greenlet = others[0]
        assert pipe({"data": 1})["result"] is None
        second_greenlet.switch()
        assert pipe({"data": 1})["result"] is None
    assert [type(error) for error in errors] == [hami.ReentrantCall] * len(uses) + [type(None)] * 4
    assert str(errors[0]) == (
        "another greenlet of this thread is inside a backend or a callback that HAMi called; "
        "run the call in another thread, with gevent.get_hub().threadpool.apply(pipe, (request,))"
    )


def test_a_pipe_that_is_dropped_while_a_greenlet_is_switched_out_inside_the_core_is_closed() -> None:
    greenlet = pytest.importorskip("greenlet", reason="greenlet is not installed")
    main = greenlet.getcurrent()
    closed: list[str] = []
    dropped: list[hami.Pipe] = []

    class Closes(hami.Backend):
        def forward(self, batch: list[Any]) -> None: ...

        def close(self) -> None:
            closed.append("closed")
            done.notify()

    def drop() -> None:
        dropped.clear()
        main.switch()

    def forward(batch: list[Any]) -> None:
        greenlet.greenlet(drop).switch()
        batch[0]["result"] = 1

    hami.register("TestCloses")(Closes)
    backend(forward, "TestDrops", thread="serialized")
    done = hami.Event()
    dropped.append(hami.pipe("TestCloses"))
    with hami.pipe("TestDrops") as pipe:
        assert pipe({"data": 1})["result"] == 1
    assert done.wait(60)
    assert closed == ["closed"]
