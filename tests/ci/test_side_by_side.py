"""Tiers side by side: each has its output in one piece, and what it found is counted."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from pathlib import Path

import pytest
from _lib import side_by_side, tiers
from _lib.totals import Totals
from hami_build.steps import Failure


def meeting(name: str, own: Path, other: Path, totals: Totals) -> None:
    """Print in two pieces, between which the other tier has printed."""
    print(f"{name} begins", flush=True)
    with own.open("wb") as out, other.open("rb") as back:  # two fifos: each waits for the other
        out.write(b"x")
        out.flush()
        back.read(1)
    print(f"{name} ends", flush=True)
    totals.check(True, name)
    totals.skip(name, "a reason")


@pytest.fixture
def fifos(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "one", tmp_path / "two"
    for path in paths:
        os.mkfifo(path)
    return paths


def swapped(name: str, own: Path, other: Path, totals: Totals) -> None:
    with other.open("rb") as back, own.open("wb") as out:
        print(f"{name} begins", flush=True)
        back.read(1)
        out.write(b"x")
        out.flush()
    print(f"{name} ends", flush=True)
    totals.check(True, name)


def test_output_is_not_mixed_and_results_are_added(fifos: tuple[Path, Path], capfd: pytest.CaptureFixture[str]) -> None:
    one, two = fifos
    totals = Totals()
    work = [("a", partial(meeting, "a", one, two)), ("b", partial(swapped, "b", two, one))]
    side_by_side.run_all(work, totals, jobs=2)
    shown = [line for line in capfd.readouterr().out.splitlines() if not line.startswith("--")]
    blocks = {tuple(shown[:3]), tuple(shown[3:])}
    assert blocks == {("== a", "a begins", "a ends"), ("== b", "b begins", "b ends")}
    assert (totals.passed, totals.failed, totals.skipped) == (2, [], [("a", "a reason")])
    assert sorted(totals.tiers) == ["a", "b"]


def fails(totals: Totals) -> None:
    raise Failure("it cannot run")


def crashes(totals: Totals) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def errs(totals: Totals) -> None:
    raise ValueError("a defect")


def works(totals: Totals) -> None:
    totals.check(True, "it")


@pytest.mark.parametrize(
    ("tier", "failure", "shown"),
    [
        (fails, "x: could not be run, see above", "it cannot run"),
        (errs, "x: ended with an error, see above", "ValueError: a defect"),
        (crashes, "x: ended without a result, status -9", ""),
    ],
)
def test_a_tier_that_ends_badly_is_a_failure(tier, failure: str, shown: str, capfd: pytest.CaptureFixture[str]) -> None:
    totals = Totals()
    side_by_side.run_all([("x", tier), ("y", works)], totals, jobs=2)
    assert (totals.passed, totals.failed) == (1, [failure])
    assert shown in capfd.readouterr().out


def test_one_tier_runs_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    ran = threading.Event()
    side_by_side.run_all([("x", lambda totals: ran.set())], Totals(), jobs=3)
    assert ran.is_set()
    assert capsys.readouterr().out == "== x\n"


def test_every_tier_has_a_place_in_the_order() -> None:
    assert sorted(map(tiers.name_of, tiers.START_ORDER)) == sorted(
        map(tiers.name_of, (*tiers.ALWAYS, *tiers.WITH_ALL, *tiers.ON_REQUEST))
    )


def test_totals_survive_a_file() -> None:
    totals = Totals(passed=1, failed=["x"], skipped=[("a: b", "why")], durations=[(0.5, "t")], tiers={"a": (2.0, 1.0)})
    assert Totals.from_dict(totals.as_dict()) == totals
