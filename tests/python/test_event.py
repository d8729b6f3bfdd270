"""hami.Event: one outcome for threads, callbacks and asyncio loops."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import weakref
from typing import Any

import hami
import pytest


class Bad(Exception):
    pass


def test_an_event_waits_until_it_is_notified() -> None:
    event = hami.Event()
    assert not event.done()
    assert event.wait(timeout=0) is False
    assert event.notify() is True
    assert event.done()
    assert event.wait() is True
    assert event.exception() is None


def test_an_event_carries_a_value() -> None:
    event, page = hami.Event(), object()
    assert event.value() is None
    event.notify(page)
    assert event.value() is page


def test_a_failed_event_keeps_its_exception() -> None:
    event, error = hami.Event(), Bad("page 3")
    assert event.fail(error) is True
    assert event.wait(timeout=0) is True
    assert event.exception() is error
    assert event.value() is None


def test_fail_takes_an_exception_class_too() -> None:
    event = hami.Event()
    event.fail(Bad)
    assert type(event.exception()) is Bad
    with pytest.raises(hami.DataTypeError) as caught:
        hami.Event().fail("page 3")  # type: ignore[arg-type]
    assert str(caught.value) == "fail() takes an exception, got 'page 3'"


def test_only_the_first_outcome_counts() -> None:
    event = hami.Event()
    assert event.notify("first") is True
    assert event.notify("second") is False
    assert event.fail(Bad()) is False
    assert event.value() == "first"
    assert event.exception() is None


def test_a_waiting_thread_wakes_up_when_another_thread_completes_the_event() -> None:
    event, waiting, woken = hami.Event(), threading.Event(), []

    def wait() -> None:
        waiting.set()
        woken.append(event.wait(timeout=60))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    waiting.wait()
    event.notify()
    for thread in threads:
        thread.join()
    assert woken == [True] * 3


def test_a_wait_that_times_out_returns_false() -> None:
    assert hami.Event().wait(timeout=0.001) is False
    assert hami.Event().wait(timeout=-1) is False


def test_ctrl_c_ends_a_wait() -> None:
    waiting = threading.Event()

    def press() -> None:
        waiting.wait()
        signal.raise_signal(signal.SIGINT)  # handled by the main thread, whichever thread raises it

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        waiting.set()
        hami.Event().wait(timeout=60)
    thread.join()


def test_callbacks_run_once_in_order_and_get_the_event() -> None:
    event, called = hami.Event(), []
    event.add_done_callback(lambda done: called.append(("first", done)))
    event.add_done_callback(lambda done: called.append(("second", done)))
    assert called == []
    event.notify()
    event.notify()
    assert called == [("first", event), ("second", event)]
    assert all(done is event for _, done in called)


def test_a_callback_on_an_event_that_is_done_runs_at_once() -> None:
    event, called = hami.Event(), []
    event.fail(Bad())
    event.add_done_callback(called.append)
    assert called == [event]


def test_a_callback_runs_on_the_thread_that_completes_the_event() -> None:
    event, threads = hami.Event(), []
    event.add_done_callback(lambda _: threads.append(threading.current_thread()))
    thread = threading.Thread(target=event.notify)
    thread.start()
    thread.join()
    assert threads == [thread]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_callback_that_raises_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    event, called, raised = hami.Event(), [], []
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: raised.append(unraisable.exc_value))
    error = Bad()

    def fail(_: hami.Event) -> None:
        raise error

    event.add_done_callback(fail)
    event.add_done_callback(called.append)
    assert event.notify() is True
    assert called == [event]
    assert raised == [error]


def test_a_callback_is_released_after_it_has_run() -> None:
    class Callback:
        def __call__(self, event: hami.Event) -> None:
            pass

    event, callback = hami.Event(), Callback()
    gone = weakref.ref(callback)
    event.add_done_callback(callback)
    del callback
    assert gone() is not None
    event.notify()
    gc.collect()
    assert gone() is None


def test_a_callback_must_be_callable() -> None:
    with pytest.raises(hami.DataTypeError) as caught:
        hami.Event().add_done_callback(3)  # type: ignore[arg-type]
    assert str(caught.value) == "a callback must be a function of one argument, got 3"


def test_await_returns_the_value() -> None:
    async def main() -> Any:
        event = hami.Event()
        asyncio.get_running_loop().call_soon(event.notify, "page")
        return await event

    assert asyncio.run(main()) == "page"


def test_await_raises_the_exception() -> None:
    async def main() -> None:
        event = hami.Event()
        asyncio.get_running_loop().call_soon(event.fail, Bad("page 3"))
        await event

    with pytest.raises(Bad, match="page 3"):
        asyncio.run(main())


def test_await_on_an_event_that_is_done_returns_at_once() -> None:
    event = hami.Event()
    event.notify(7)

    async def main() -> Any:
        return await event

    assert asyncio.run(main()) == 7


def test_several_loops_may_await_an_event_of_another_thread() -> None:
    event, ready, values = hami.Event(), threading.Semaphore(0), []

    async def wait() -> Any:
        asyncio.get_running_loop().call_soon(ready.release)  # runs once the await below has begun
        return await event

    loops = [threading.Thread(target=lambda: values.append(asyncio.run(wait()))) for _ in range(2)]
    for loop in loops:
        loop.start()
    for _ in loops:
        ready.acquire()
    event.notify("page")
    for loop in loops:
        loop.join()
    assert values == ["page", "page"]


def test_a_cancelled_await_leaves_no_callback_in_the_event() -> None:
    event = hami.Event()

    async def main() -> weakref.ref[Any]:
        task = asyncio.ensure_future(_outcome(event))
        await asyncio.sleep(0)  # the task runs up to its await
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(main())
    gc.collect()
    assert loop() is None  # the event holds no callback that refers to the loop
    assert event.notify() is True


async def _outcome(event: hami.Event) -> Any:
    return await event


def test_completing_an_event_whose_loop_is_closed_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", raised.append)
    event, loop = hami.Event(), asyncio.new_event_loop()
    task = loop.create_task(_outcome(event))
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert event.notify() is True
    assert raised == []
    task.get_coro().close()  # type: ignore[union-attr]
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_an_event_is_freed_together_with_the_error_whose_traceback_refers_to_it() -> None:
    class Mistake(Exception):
        pass

    async def fail() -> None:
        event = hami.Event()
        event.fail(Mistake())
        await event

    with pytest.raises(Mistake) as caught:
        asyncio.run(fail())
    gone = weakref.ref(caught.value)
    del caught
    gc.collect()
    assert gone() is None


def test_the_outcome_lives_as_long_as_its_event() -> None:
    def held() -> weakref.ref[Any]:
        event, value = hami.Event(), type("Value", (), {})()
        value.event = event
        event.notify(value)
        queue.put(event)
        return weakref.ref(value)

    queue = hami.Queue()
    value = held()
    failed = hami.Event()
    failed.fail(ValueError("no"))
    gc.collect()
    assert repr(failed.exception()) == "ValueError('no')"
    assert queue.get().value() is value() is not None
    gc.collect()
    assert value() is None


def test_repr_shows_the_state() -> None:
    waiting, done, failed = hami.Event(), hami.Event(), hami.Event()
    done.notify()
    failed.fail(Bad("page 3"))
    assert repr(waiting) == "<hami.Event: waiting>"
    assert repr(done) == "<hami.Event: done>"
    assert repr(failed) == "<hami.Event: failed, Bad('page 3')>"


def test_an_event_passes_through_a_pipe_as_the_same_object() -> None:
    event = hami.Event()
    with hami.pipe("Identity") as pipe:
        assert pipe({"data": event})["result"] is event
        assert pipe({"data": [event]})["result"][0] is event
