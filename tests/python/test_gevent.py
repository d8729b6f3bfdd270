"""Pipes under gevent: greenlets that wait let other greenlets run, and a switch inside the core is an error."""

from __future__ import annotations

import importlib.util
from typing import Any

import hami
import pytest
from running import backend, check_clean, each, run_script

PROLOGUE = """
    import os, sys
    from gevent import monkey
    if "patched" in sys.argv:
        monkey.patch_all()
    import gevent, hami
    allocate_lock = monkey.get_original("_thread", "allocate_lock")  # waits on a thread, not in a hub

    @hami.register
    class AddOne(hami.Backend):
        def forward(self, batch):
            for item in batch:
                item["result"] = item["data"] + 1

    def all_values(greenlets):
        gevent.joinall(greenlets, raise_error=True)
        return [greenlet.value for greenlet in greenlets]
"""


@pytest.fixture(params=["patched", "unpatched"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def check(script: str, mode: str) -> None:
    if importlib.util.find_spec("gevent") is None:
        pytest.skip("gevent is not installed")
    check_clean(run_script(PROLOGUE + script, mode), "good")


def test_a_future_can_be_waited_for_in_any_greenlet(mode: str) -> None:
    check(
        """
    with hami.pipe("AddOne") as pipe:
        assert pipe.submit({"data": 1}).result()["result"] == 2
        assert pipe.submit({"data": "1"}).exception() is not None
        started = [gevent.spawn(pipe.submit({"data": number}).result) for number in range(50)]
        assert [request["result"] for request in all_values(started)] == list(range(1, 51))
        assert [request["result"] for request in pipe.map({"data": number} for number in range(3))] == [1, 2, 3]
    print("good")
    """,
        mode,
    )


def test_functions_of_the_standard_library_wait_for_futures(mode: str) -> None:
    check(
        """
    from concurrent import futures
    with hami.pipe("AddOne") as pipe:
        for _ in range(20):
            submitted = [pipe.submit({"data": number}) for number in range(5)]
            assert len(futures.wait(submitted).done) == 5
            assert len(list(futures.as_completed([pipe.submit({"data": 1})]))) == 1
    print("good")
    """,
        mode,
    )


@pytest.mark.parametrize("call", ["pipe(request)", "pipe([request])[0]", "pipe.submit(request).result()"])
@pytest.mark.parametrize("thread", ["dedicated", "serialized", "concurrent"])
def test_many_greenlets_use_a_backend_that_switches_greenlets(call: str, thread: str, mode: str) -> None:
    check(
        f"""
    @hami.register
    class Switches(hami.Backend):
        thread = "{thread}"

        def forward(self, batch):
            for item in batch:
                gevent.sleep(0)
                item["result"] = item["data"] + 1

    def use(pipe, number):
        request = {{"data": number}}
        return {call}["result"]

    with hami.pipe({{"backend": "Switches", "instance_num": 2}}) as pipe:
        assert use(pipe, 1) == 2
        assert all_values([gevent.spawn(use, pipe, number) for number in range(50)]) == list(range(1, 51))
    print("good")
    """,
        mode,
    )


WAITS = ["pipe(request)", "pipe([request])", "pipe.close()"]
PATCHED_WAITS = ["pipe.submit(request).result()", "list(pipe.map([request]))", "futures.wait([pipe.submit(request)])"]


@pytest.mark.parametrize(
    ("mode", "wait"),
    [("unpatched", wait) for wait in WAITS] + [("patched", wait) for wait in (*WAITS, *PATCHED_WAITS)],
)
def test_other_greenlets_run_while_one_waits(wait: str, mode: str) -> None:
    """The backend returns only after another greenlet has opened the gate."""
    check(
        f"""
    from concurrent import futures
    gate = allocate_lock()
    gate.acquire()

    @hami.register
    class Gated(hami.Backend):
        def forward(self, batch):
            assert gate.acquire(timeout=30)
            batch[0]["result"] = 1

    pipe = hami.pipe("Gated")
    request = {{"data": 1}}
    if "close" in {wait!r}:
        outstanding = pipe.submit({{"data": 1}})
    waiting = gevent.spawn(lambda: {wait})
    gevent.spawn(gate.release)
    all_values([waiting])
    pipe.close()
    print("good")
    """,
        mode,
    )


def test_a_greenlet_that_stops_waiting_cancels_its_call() -> None:
    check(
        """
    from concurrent.futures import TimeoutError
    started, cancelled = [], []

    @hami.register
    class Long(hami.Backend):
        def forward(self, batch):
            started.append(batch[0]["data"])
            while not batch[0].cancelled:
                os.sched_yield()
            cancelled.append(batch[0]["data"])

    with hami.pipe("Long") as pipe:
        killed = gevent.spawn(pipe, {"data": "killed"})
        while not started:
            gevent.sleep(0)
        killed.kill()
        try:
            with gevent.Timeout(0.05):
                pipe({"data": "timed out"})
        except gevent.Timeout:
            cancelled.append("raised")
        future = pipe.submit({"data": "limited"})
        try:
            future.result(timeout=0.05)
        except TimeoutError:
            future.cancel()
        try:
            pipe({"data": "deadline"}, timeout=0.05)
        except hami.DeadlineExceeded:
            cancelled.append("expired")
    assert cancelled.index("raised") < cancelled.index("limited")
    assert set(cancelled) >= {"killed", "timed out", "raised", "limited", "expired"}, cancelled
    print("good")
    """,
        "patched",
    )


def test_a_future_completes_after_the_thread_that_submitted_it_has_ended() -> None:
    check(
        """
    gate = allocate_lock()
    gate.acquire()

    @hami.register
    class Gated(hami.Backend):
        def forward(self, batch):
            assert gate.acquire(timeout=30)
            batch[0]["result"] = 1

    def submit():
        future = pipe.submit({"data": 1})
        future.add_done_callback(completed.append)
        futures.append(future)
        gevent.get_hub().destroy(destroy_loop=True)
        ended.release()

    pipe, futures, completed = hami.pipe("Gated"), [], []
    ended = allocate_lock()
    ended.acquire()
    monkey.get_original("_thread", "start_new_thread")(submit, ())
    assert ended.acquire(timeout=30)
    gate.release()
    pipe.close()
    assert completed == futures and futures[0].result()["result"] == 1
    print("good")
    """,
        "patched",
    )


@pytest.mark.parametrize("end", ["gevent.get_hub().destroy(destroy_loop=True)", "pass"])
def test_a_future_completes_if_the_thread_ends_after_its_hub_was_woken_and_before_it_runs(end: str) -> None:
    """The hub never runs; the core has only put the completion into its list."""
    check(
        f"""
    @hami.register
    class Gated(hami.Backend):
        def forward(self, batch):
            assert gate.acquire(timeout=30)
            batch[0]["result"] = 1

    def complete(future):
        completed.append(future.result()["result"])
        told.release()

    def submit():
        for _ in range(2):
            pipe.submit({{"data": 1}}).add_done_callback(complete)
        gate.release()
        while len(vars(gevent.get_hub())["hami_completions"]._ready) < 1:
            os.sched_yield()
        assert not completed
        {end}

    gate, told = allocate_lock(), allocate_lock()
    gate.acquire(), told.acquire()
    pipe, completed = hami.pipe("Gated"), []
    monkey.get_original("_thread", "start_new_thread")(submit, ())
    assert told.acquire(timeout=30)
    gate.release()  # of the request that was running when the thread ended
    assert told.acquire(timeout=30)
    pipe.close()
    assert completed == [1, 1]
    print("good")
    """,
        "patched",
    )


def test_greenlets_build_pipes_whose_init_switches_greenlets(mode: str) -> None:
    check(
        """
    @hami.register
    class Loads(hami.Backend):
        thread = "concurrent"

        def init(self, options):
            gevent.sleep(0)

        def close(self):
            gevent.sleep(0)

        def forward(self, batch):
            for item in batch:
                item["result"] = item["data"] + 1

    def use(number):
        with hami.pipe("Loads") as pipe:
            return pipe({"data": number})["result"]

    assert all_values([gevent.spawn(use, number) for number in range(20)]) == list(range(1, 21))
    print("good")
    """,
        mode,
    )


def test_a_backend_on_a_thread_of_the_core_may_call_pipes(mode: str) -> None:
    """Deadlock cycles are detected there too."""
    check(
        """
    @hami.register
    class Calls(hami.Backend):
        def forward(self, batch):
            for item in batch:
                future = inner.submit({"data": item["data"]})
                item["result"] = inner({"data": future.result()["result"]})["result"]

    with hami.pipe("Calls") as pipe:
        with hami.pipe("AddOne") as inner:
            assert pipe({"data": 1})["result"] == 3
        inner = pipe
        try:
            pipe({"data": 1})
        except hami.ReentrantCall:
            print("good")
    """,
        mode,
    )


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
        "another greenlet of this thread is inside a backend or a callback that HAMi called, and must return before "
        'this one can use HAMi; give a backend that switches greenlets thread = "dedicated"'
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
