"""Each pair of what has a state at the same time: the publishers that are remembered, Shadow, and the watchdog."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hami
import pytest
from hami.cli import main
from together import LONG_S, is_cancelled, pairs, run_forked, run_together

import hami_tools
from hami_tools import user_code, watchdog
from hami_tools.differences import Tolerance
from hami_tools.packages import publishers
from hami_tools.packages.installers import Change
from hami_tools.packages.publishers import Remembered
from hami_tools.shadow.record import Answer, Record

NAME = "acme-words"
CONFIRMED = Remembered("https://confirmed.example")


def change_from(server: str, name: str = NAME) -> Change:
    return Change(name, "", "1.0", f"https://{server}/{name}-1.0-py3-none-any.whl", "1")


def install(server: str, name: str = NAME) -> None:
    publishers.remember(publishers.require_same([change_from(server, name)], {}))


def trust(*options: str) -> None:
    assert main(["trust", NAME, *options]) in (0, 1)  # 1: nothing is remembered that could be forgotten


TRUST: dict[str, Callable[[], object]] = {
    "install": lambda: install("one.example"),
    "install from another server": lambda: install("other.example"),
    "install another plugin": lambda: install("one.example", "acme-others"),
    "confirm": lambda: trust("--source", CONFIRMED.source),
    "forget": lambda: trust("--forget"),
    "list": lambda: main(["trust"]),
}


@pytest.mark.parametrize(("first", "second"), pairs(TRUST))
def test_two_changes_of_the_remembered_publishers_at_once(first: str, second: str) -> None:
    for _ in range(5):
        run_together([TRUST[name] for name in (first, second)], (hami.PluginError,))
        known = publishers.load()
        if "confirm" in (first, second) and "forget" not in (first, second):
            assert known[NAME] == CONFIRMED
        if "install another plugin" in (first, second):
            assert known["acme-others"].source == "https://one.example"
        assert {each.suffix for each in publishers.path().parent.glob("*")} <= {".json", ".lock"}


def test_a_publisher_that_is_confirmed_during_an_installation_stays() -> None:
    seen = publishers.require_same([change_from("one.example"), change_from("one.example", "acme-others")], {})
    trust("--source", CONFIRMED.source)
    publishers.remember(seen)
    known = publishers.load()
    assert known[NAME] == CONFIRMED
    assert known["acme-others"].source == "https://one.example"
    trust("--forget")
    seen = publishers.require_same([change_from("one.example")], {})
    install("other.example")
    publishers.remember(seen)
    assert publishers.load()[NAME].source == "https://other.example"


@hami.register
class DoublesPositive(hami.Backend):
    """Doubles a number, and a negative one is an error."""

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            if item["data"] < 0:
                item.fail(ValueError("negative"))
            else:
                item["result"] = 2 * item["data"]


def shadow(folder: Path) -> dict[str, Any]:
    return {
        "a": {"backend": "Shadow(b=candidate)[DoublesPositive]", "share": 1.0, "keep": 2, "folder": str(folder)},
        "candidate": {"backend": "DoublesPositive"},
        "dag_entrypoint": "Forward[node.a]",
    }


class Compared:
    """A pipe with a Shadow, and how many requests it has answered."""

    def __init__(self, folder: Path) -> None:
        self.source = shadow(folder)
        self.pipe = hami.pipe(self.source)
        self._answered = itertools.count()

    def call(self, *data: int) -> None:
        for number in data:
            assert self.pipe({"data": number})["result"] == 2 * number
            next(self._answered)

    def batch(self) -> None:
        requests = [{"data": number} for number in range(8)]
        for request in self.pipe(requests):
            assert request["result"] == 2 * request["data"]
            next(self._answered)

    def fail(self) -> None:
        with contextlib.suppress(ValueError):
            self.pipe({"data": -1})
        next(self._answered)

    def leave(self) -> None:
        for number in itertools.count():
            if not is_cancelled(self.pipe.acall({"data": 1}), number):
                return

    def counted(self) -> int:
        counters = self.pipe.stats()["a"].counters
        return sum(counters.get(name, 0) for name in ("compared", "not_compared", "a_failed"))

    def check(self) -> None:
        """Each answer of A was compared, or is counted as one that was not."""
        answered = next(self._answered)
        for _ in range(LONG_S * 100):
            if self.counted() >= answered:
                break
            threading.Event().wait(0.01)
        assert self.counted() == answered


SHADOW: dict[str, Callable[[Compared], object]] = {
    "call": lambda compared: compared.call(*range(20)),
    "batch": Compared.batch,
    "fail": Compared.fail,
    "leave": Compared.leave,
    "stats": Compared.counted,
    "replace": lambda compared: compared.pipe.replace(compared.source),
    "close": lambda compared: compared.pipe.close(),
}


@pytest.mark.parametrize(("first", "second"), pairs(SHADOW))
def test_two_calls_of_a_pipe_with_a_shadow_at_once(first: str, second: str, tmp_path: Path) -> None:
    allowed = (hami.PipeClosed,) if "close" in (first, second) else ()
    compared = Compared(tmp_path)
    run_together([lambda name=name: SHADOW[name](compared) for name in (first, second)], allowed)  # type: ignore[misc]
    if not {first, second} & {"close", "replace", "leave"}:
        compared.check()
    compared.pipe.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "hami-shadow" and left(thread)]


def left(thread: threading.Thread) -> bool:
    thread.join(LONG_S)
    return thread.is_alive()


RECORD: dict[str, Callable[[Record], object]] = {
    "equal": lambda record: record.add({"data": 1}, Answer(1.0, 0.1), Answer(1.0, 0.1)),
    "differs": lambda record: record.add({"data": 1}, Answer(1.0, 0.1), Answer(2.0, 0.1)),
    "differs more": lambda record: record.add({"data": 1}, Answer(1.0, 0.1), Answer("text", 0.1)),
    "as_dict": lambda record: record.as_dict(),
}


@pytest.mark.parametrize(("first", "second"), pairs(RECORD))
def test_two_methods_of_a_record_at_once(first: str, second: str, tmp_path: Path) -> None:
    record = Record(Tolerance(None, None), 2, tmp_path)
    run_together([lambda name=name: RECORD[name](record) for name in (first, second)] * 4)  # type: ignore[misc]
    facts, added = record.as_dict(), sum(8 for name in (first, second) if name != "as_dict")
    differing = sum(8 for name in (first, second) if name.startswith("differs"))
    assert (facts["compared"], facts["differ"], facts["not_kept"]) == (added, differing, 0)
    kept = [json.loads((folder / "difference.json").read_text()) for folder in tmp_path.iterdir()]
    assert len(kept) == min(2, differing)
    if "differs more" in (first, second):
        assert all(each["reason"] for each in kept)


class Looked:
    """The watchdog of this process, in place of one whose thread another test has started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running = self.most = 0
        self._lock = threading.Lock()
        monkeypatch.setattr(watchdog, "_process", None)
        monkeypatch.setattr(watchdog, "_watch", self._watch)
        self._run = watchdog._look_until_idle

    def _watch(self, least_s: float, log: Callable[[str], None]) -> None:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            self._run(watchdog.Watchdog(least_s), log)
        finally:
            with self._lock:
                self.running -= 1


WATCHDOG: dict[str, Callable[[], object]] = {
    "start": lambda: watchdog.start(1e-4, lambda _: None),
    "pipe": lambda: hami.pipe("DoublesPositive").close(),
    "fork": lambda: run_forked(lambda: WATCHDOG["pipe"]()),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a process with threads forks
@pytest.mark.parametrize(("first", "second"), pairs(WATCHDOG))
def test_two_starts_of_the_watchdog_at_once(first: str, second: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looked(monkeypatch)
    monkeypatch.setenv("HAMI_WATCHDOG", "100ms")
    run_together([WATCHDOG[name] for name in (first, second)] * 2)
    assert looked.most <= 1
    for thread in threading.enumerate():
        assert thread.name != "hami-watchdog" or not left(thread)
    assert watchdog._process is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a process with threads forks
def test_a_process_that_forks_while_a_time_is_noted_has_times_of_its_own() -> None:
    def measure() -> None:
        with hami_tools.timer("in the child"):
            pass
        assert list(hami_tools.timers()) == ["in the child"]

    with hami_tools.timer("in the parent"), user_code._lock:
        run_forked(measure)
