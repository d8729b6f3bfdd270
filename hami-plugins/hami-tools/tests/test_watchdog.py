"""The watchdog reports a request that takes ten times as long as usual, once, with what the process does meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import Run
from running import TIMEOUT

from hami_tools import watchdog
from hami_tools.watchdog import TIMES_USUAL, Watchdog

# Two nodes whose backends take two locks in opposite order.
DEADLOCK = """
import logging, os, sys, threading
import hami

class EndsTheProgram(logging.Handler):
    def emit(self, record):
        print(record.name, record.levelname, record.getMessage(), file=sys.stderr, flush=True)
        os._exit(3)

logging.getLogger("hami").addHandler(EndsTheProgram())
locks = threading.Lock(), threading.Lock()
both = threading.Barrier(2)

class Locks(hami.Backend):
    def forward(self, batch):
        for item in batch:
            if item["data"] == "deadlock":
                first, second = locks if self.first == 0 else reversed(locks)
                with first:
                    both.wait()
                    with second:
                        pass
            item["result"] = item["data"]

@hami.register
class Left(Locks):
    first = 0

@hami.register
class Right(Locks):
    first = 1

pipe = hami.pipe({"left": {"backend": "Left", "next": "right"}, "right": {"backend": "Right"}})
for _ in range(20):
    pipe({"data": "fine"})
pipe.submit({"data": "deadlock", "node_name": "left"})
pipe.submit({"data": "waits", "node_name": "left"})
pipe.submit({"data": "deadlock", "node_name": "right"}).result()
"""


def status(*, waits: int = 0, seconds: tuple[float, ...] = (), ended: int = 5, usual_s: float = 0.2) -> Any:
    """Return a document as the core writes it, with one node."""
    times = [usual_s * 1e3 * ended, [[0.0, 1e9, ended]] if ended else []]
    node = {"waiting": waits, "running": len(seconds), "completed": ended, "batch_ms": times, "latency_ms": times}
    node.update(dict.fromkeys(("failed", "rejected", "expired", "cancelled"), 0))
    threads = [{"thread": 1, "node": "det", "backend": "Detect", "seconds": each} for each in seconds]
    return {"pipes": [{"opened_ns": 7, "label": "", "stats": {"det": node}, "threads": threads}]}


def test_a_request_is_late_after_ten_times_the_mean_of_its_node() -> None:
    watchdog = Watchdog(least_s=0.1)
    assert watchdog.look(status(seconds=(0.99 * TIMES_USUAL * 0.2,)), 0.0) == []
    assert watchdog.look(status(seconds=(2.1, 0.1)), 1.0) == [
        'a request of node "det" runs for 2.1 s; the mean is 0.2 s'
    ]


def test_a_request_is_not_late_before_the_least_time() -> None:
    watchdog = Watchdog(least_s=10.0)
    assert watchdog.look(status(seconds=(9.9,)), 0.0) == []
    assert len(watchdog.look(status(seconds=(10.1,)), 1.0)) == 1


def test_a_node_without_an_estimate_is_not_late() -> None:
    assert Watchdog(least_s=0.1).look(status(seconds=(500.0,), ended=0), 0.0) == []


def test_a_late_request_is_reported_once_and_the_next_one_again() -> None:
    watchdog = Watchdog(least_s=1.0)
    looks = [(3.0,), (4.0,), (), (3.0,)]
    assert [len(watchdog.look(status(seconds=each), float(i))) for i, each in enumerate(looks)] == [1, 0, 0, 1]


def test_a_queue_from_which_no_request_ends_is_late() -> None:
    watchdog = Watchdog(least_s=1.0)
    assert watchdog.look(status(waits=2), 0.0) == []
    assert watchdog.look(status(waits=2), 1.9) == []
    assert watchdog.look(status(waits=2), 2.1) == ['a request of node "det" has not begun for 2.1 s; the mean is 0.2 s']
    assert watchdog.look(status(waits=2, ended=6), 2.2) == []


def test_a_queue_from_which_requests_end_is_not_late() -> None:
    watchdog = Watchdog(least_s=1.0)
    assert [watchdog.look(status(waits=2, ended=n), 1.5 * n) for n in range(1, 9)] == [[]] * 8


def test_a_deadlock_is_reported_with_queues_owners_and_stacks(tmp_path: Path) -> None:
    program = tmp_path / "deadlock.py"
    program.write_text(DEADLOCK, "utf-8")
    env = {**os.environ, "HAMI_WATCHDOG": "200ms"}
    done = subprocess.run(
        [sys.executable, program], env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("hami.core WARNING watchdog: a request of node ")
    assert 'node "left": 1 wait, 1 run, 20 completed' in done.stderr
    assert 'node "right": 0 wait, 1 run, 20 completed' in done.stderr
    assert '(Left): in Left of node "left" for ' in done.stderr
    assert '(Right): in Right of node "right" for ' in done.stderr
    assert done.stderr.count("in forward: with second:") == 2


@pytest.mark.parametrize("given", ["soon", "0s", "-1s", "5"])
def test_a_wrong_least_time_is_an_error(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAMI_WATCHDOG", given)
    with pytest.raises(hami.ConfigError, match="HAMI_WATCHDOG takes a duration above zero"):
        hami.pipe("Identity")


def test_it_needs_the_status_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAMI_WATCHDOG", "10s")
    monkeypatch.setenv("HAMI_TOP", "0")
    with pytest.raises(hami.ConfigError, match="HAMI_TOP=0"):
        hami.pipe("Identity")


def test_without_its_package_the_error_names_it(hami_command: Run) -> None:
    run = ("run", "Identity", "--data", "1")
    done = hami_command(*run, HAMI_WATCHDOG="10s", HAMI_PLUGINS="no:tools")
    assert done.stderr == "error: HAMI_WATCHDOG needs hami-tools, which is disabled by HAMI_PLUGINS=no:tools\n"
    assert hami_command(*run, HAMI_WATCHDOG="10s").stdout == "1\n"


def test_the_next_pipe_starts_a_watchdog_after_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise MemoryError("planted")

    monkeypatch.setattr(watchdog, "_process", os.getpid())
    monkeypatch.setattr(hami.observe, "status", fail)
    with pytest.raises(MemoryError, match="planted"):
        watchdog._watch(1e-6, lambda _: None)
    assert watchdog._process is None
