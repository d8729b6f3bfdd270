"""Tiers side by side: each has its output in one piece, and what it found is counted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from _lib import runners
from _lib.paths import ROOT
from _lib.runners import Totals
from hami_build.steps import Failure

# Prints in two pieces, between which the other tier has printed: two named pipes, and each waits for the other.
MEETING = """
import pickle, sys
from _lib.runners import Totals
name, own, other = sys.argv[1:4]
report = sys.argv[sys.argv.index("--report") + 1]
print(name, "begins", flush=True)
files = [open(own, "wb"), open(other, "rb")] if name == "a" else [open(other, "rb"), open(own, "wb")]
out, back = sorted(files, key=lambda file: file.mode, reverse=True)
out.write(b"x"); out.flush(); back.read(1)
print(name, "ends", *sys.argv[sys.argv.index("--") + 1:], flush=True)
pickle.dump(Totals(passed=1, skipped=[(name, "a reason")], tiers={name: (1, 1)}), open(report, "wb"))
"""


def test_output_is_not_mixed_and_results_are_added(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "ci"))
    pipes = [str(tmp_path / name) for name in ("one", "two")]
    for pipe in pipes:
        os.mkfifo(pipe)
    commands = {
        "a": [sys.executable, "-c", MEETING, "a", *pipes],
        "b": [sys.executable, "-c", MEETING, "b", *reversed(pipes)],
    }
    totals = Totals()
    runners.run_side_by_side(commands, ["-k", "x"], totals, jobs=2)
    shown = [line for line in capfd.readouterr().out.splitlines() if not line.startswith("--")]
    assert {tuple(shown[:2]), tuple(shown[2:])} == {("a begins", "a ends -k x"), ("b begins", "b ends -k x")}
    assert (totals.passed, totals.failed) == (2, [])
    assert sorted(totals.skipped) == [("a", "a reason"), ("b", "a reason")]
    assert sorted(totals.tiers) == ["a", "b"]


@pytest.mark.parametrize(
    ("code", "status", "shown"),
    [("raise ValueError('a defect')", 1, "ValueError: a defect"), ("import os; os.kill(os.getpid(), 9)", -9, "")],
)
def test_a_tier_that_ends_badly_is_a_failure(
    code: str, status: int, shown: str, capfd: pytest.CaptureFixture[str]
) -> None:
    totals = Totals()
    runners.run_side_by_side({"x": [sys.executable, "-c", code]}, [], totals, jobs=2)
    assert (totals.passed, totals.failed) == (0, [f"x: ended without a result, status {status}"])
    assert shown in capfd.readouterr().out


def test_a_tier_that_cannot_run_is_a_failure_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    def fails(totals: Totals) -> None:
        raise Failure("it cannot run")

    totals = Totals()
    runners.run_tier("x", fails, totals)
    assert totals.failed == ["x: could not be run, see above"]
    assert capsys.readouterr().out == "== x\nit cannot run\n== x: 0 s, 0 s of CPU time\n"
