"""Each pair of methods of Sources, Delivery and LivePage at the same time: frames keep their order, and threads end."""

from __future__ import annotations

import contextlib
import gc
import http.client
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from together import LONG_S, pairs, run_together

from hami_vision.delivery import Delivery
from hami_vision.live_page import LivePage
from hami_vision.readers import Reader, Reading
from hami_vision.sources import Frame, Sources, SourceState

IMAGE = np.zeros((4, 4, 3), np.uint8)
FRAMES = 20


def frames() -> list[np.ndarray]:
    return [IMAGE] * FRAMES


class Orders:
    """The frames that several threads have taken, of which each thread has seen those of a source in their order."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self._numbers = itertools.count()

    def take(self) -> None:
        seen: dict[str, int] = {}
        for _ in range(8):
            frame = self.sources.next(0)
            if frame is not None:
                assert frame.index > seen.get(frame.source, -1)
                seen[frame.source] = frame.index

    def add_and_remove(self) -> None:
        name = f"added {next(self._numbers)}"
        self.sources.add(name, frames())
        self.sources.next(0)
        self.sources.remove(name)


SOURCES: dict[str, Callable[[Orders], object]] = {
    "next": Orders.take,
    "next with time": lambda orders: orders.sources.next(1e-4),
    "iterate": lambda orders: next(iter(orders.sources), None),
    "add": lambda orders: orders.sources.add("same", frames()),
    "add and remove": Orders.add_and_remove,
    "remove": lambda orders: orders.sources.remove("first"),
    "states": lambda orders: orders.sources.states(),
    "close": lambda orders: orders.sources.close(),
}


@pytest.mark.parametrize(("first", "second"), pairs(SOURCES))
@pytest.mark.parametrize("take", ["every", "latest"])
def test_two_methods_of_sources_at_once(first, second, take):
    allowed: tuple[type[BaseException], ...] = ()
    if "add" in (first, second) or "close" in (first, second):
        allowed += (ValueError,)  # the name is taken, or the sources are closed
    if "remove" in (first, second):
        allowed += (KeyError,)
    before = set(threading.enumerate())
    with Sources({"first": frames(), "second": frames()}, take=take) as sources:
        orders = Orders(sources)
        run_together([lambda name=name: SOURCES[name](orders) for name in (first, second)], allowed)
        if "close" not in (first, second):
            rest = list(sources)
            for name in ("second", "same"):
                indexes = [frame.index for frame in rest if frame.source == name]
                assert indexes == sorted(set(indexes))
            assert all(state.is_done and not state.waiting for state in sources.states().values())
    assert sources.next() is None
    for thread in set(threading.enumerate()) - before:
        thread.join(LONG_S)
        assert not thread.is_alive()


class Sink:
    def __init__(self) -> None:
        self.frames: list[int] = []
        self.closed = 0

    def __call__(self, frame: Frame, result: Any) -> None:
        assert not self.closed
        self.frames.append(frame.index)

    def close(self) -> None:
        self.closed += 1


class Sent:
    """A delivery to two sinks, and the frames that were sent."""

    def __init__(self) -> None:
        self.sinks = {"lossless": Sink(), "lossy": Sink()}
        self.delivery = Delivery(self.sinks, lossless=("lossless",), timeout=LONG_S)
        self._numbers = itertools.count()
        self.sent: list[int] = []
        self.called: list[None] = []

    def send(self) -> None:
        for _ in range(20):
            number = next(self._numbers)
            self.delivery.send(Frame("a", number, IMAGE, 0.0, None), "result")
            self.sent.append(number)

    def call(self) -> None:
        self.delivery.call("lossless", lambda: self.called.append(None))

    def states(self) -> None:
        for state in self.delivery.states().values():
            assert state.taken + state.dropped <= 80
            assert state.failed == 0


DELIVERY: dict[str, Callable[[Sent], object]] = {
    "send": Sent.send,
    "call": Sent.call,
    "states": Sent.states,
    "close": lambda sent: sent.delivery.close(),
}


@pytest.mark.parametrize(("first", "second"), pairs(DELIVERY))
def test_two_methods_of_a_delivery_at_once(first, second):
    sent = Sent()
    allowed = (ValueError,) if "close" in (first, second) else ()
    run_together([lambda name=name: DELIVERY[name](sent) for name in (first, second)], allowed)
    sent.delivery.close()
    states = sent.delivery.states()
    assert set(sent.sent) <= set(sent.sinks["lossless"].frames)
    for name, sink in sent.sinks.items():
        assert sink.closed == 1
        assert len(sink.frames) == states[name].taken
        assert states[name].failed == 0
    if "close" not in (first, second):
        assert states["lossy"].taken + states["lossy"].dropped == len(sent.sent)


def get(page: LivePage, path: str, size: int = -1) -> bytes:
    with contextlib.closing(http.client.HTTPConnection(page.host, int(page.address.split(":")[2][:-1]), LONG_S)) as to:
        to.request("GET", path)
        answer = to.getresponse()
        assert answer.status == 200
        return answer.read(size) if size > 0 else answer.read()


def first_shown(page: LivePage) -> object:
    shown = page.shown("a")
    with contextlib.closing(shown):
        return next(shown, None)


PAGE: dict[str, Callable[[LivePage], object]] = {
    "show": lambda page: page(Frame("a", 1, IMAGE, 0.0, None), "result"),
    "show another source": lambda page: page(Frame("b", 1, IMAGE, 0.0, None), "result"),
    "names": lambda page: page.names(),
    "shown": first_shown,
    "page": lambda page: get(page, "/"),
    "frames": lambda page: get(page, "/frames?source=a", 50),
    "results": lambda page: get(page, "/results?source=a", 10),
    "close": lambda page: page.close(),
}


@pytest.mark.parametrize(("first", "second"), pairs(PAGE))
def test_two_methods_of_a_page_at_once(first, second, capsys):
    gone = (ConnectionError, http.client.HTTPException) if "close" in (first, second) else ()
    page = LivePage(0)
    page(Frame("a", 0, IMAGE, 0.0, None), "result")
    run_together([lambda name=name: PAGE[name](page) for name in (first, second)], gone)
    page.close()
    assert list(page.shown("a")) == []
    assert capsys.readouterr().err == ""


def test_a_sink_may_close_the_delivery_that_calls_it():
    def close(frame: Frame, result: Any) -> None:
        delivery.close()

    delivery = Delivery({"closes": close})
    delivery.send(Frame("a", 0, IMAGE, 0.0, None), "result")
    delivery.close()
    assert delivery.states()["closes"].taken == 1
    assert delivery.states()["closes"].failed == 0


def test_callers_who_close_a_delivery_at_once_count_a_sink_that_hangs_once(monkeypatch):
    monkeypatch.setattr("hami_vision.delivery._CLOSE_TIMEOUT", 0.0)
    held = threading.Event()
    delivery = Delivery({"hangs": lambda frame, result: held.wait(LONG_S)})
    delivery.send(Frame("a", 0, IMAGE, 0.0, None), "result")
    run_together([delivery.close])
    assert delivery.states()["hangs"].failed == 1
    held.set()


def test_without_a_thread_no_sink_and_no_port_is_left_open(monkeypatch):
    start, first = threading.Thread.start, Sink()

    def start_one(self: threading.Thread) -> None:
        if self.name != "sink first":
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", start_one)
    with pytest.raises(RuntimeError, match="can't start"):
        Delivery({"first": first, "second": Sink()})
    assert first.closed == 1
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with pytest.raises(RuntimeError, match="can't start"):
        LivePage(port)
    gc.collect()  # which warns about a socket that is left open


class Closing(Reader):
    """A source that closes the sources that read it."""

    def __init__(self, is_live: bool) -> None:
        self.is_live = is_live
        self.taken = threading.Event()

    def __iter__(self) -> Iterator[Reading]:
        yield Reading(lambda: IMAGE)
        assert self.taken.wait(LONG_S)
        self.sources.close()
        yield Reading(lambda: IMAGE)


@pytest.mark.parametrize("is_live", [False, True])
def test_a_source_that_is_closed_has_neither_ended_nor_failed(is_live):
    reader = Closing(is_live)
    with Sources({"closes": reader}, live_retries=0) as sources:
        reader.sources = sources
        assert sources.next(LONG_S) is not None
        reader.taken.set()
        assert sources.next(LONG_S) is None
    assert sources.states() == {"closes": SourceState("closed", frames=1)}
