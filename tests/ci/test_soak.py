"""ci/soak gives each promise its time, ends with a table, and holds overload to what is possible."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from _lib.paths import ROOT


@pytest.fixture(name="soak")
def soak_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("soak", str(ROOT / "ci" / "soak"))
    spec = importlib.util.spec_from_loader("soak", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "soak", module)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    return module


class FakeTime:
    """A clock that moves only while a promise is tried."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_suites_take_their_own_time_and_the_others_share_the_rest(
    soak: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, given = FakeTime(), {}

    def promise(name: str, takes: float | None = None) -> object:
        def attempt(seconds: float, strict: bool) -> dict[str, str]:
            given[name] = seconds
            clock.now += takes or seconds
            if name == "R9":
                raise soak.Missing("no such machine")
            return {"name": name}

        return soak.Promise(name, attempt, takes is not None)

    monkeypatch.setattr(soak, "time", clock)
    monkeypatch.setattr(
        soak, "PROMISES", {"R1": promise("R1"), "R4": promise("R4", 1200.0), "R9": promise("R9"), "R18": promise("R18")}
    )
    seen = list(soak.attempts(["R1", "R4", "R9", "R18"], 3600.0, True))
    assert given == {"R4": 900.0, "R1": 800.0, "R9": 800.0, "R18": 800.0}
    assert [each[:2] for each in seen] == [("R4", 1200.0), ("R1", 800.0), ("R9", 800.0), ("R18", 800.0)]
    assert seen[2][2:] == ("not tried: no such machine", True)
    assert clock.now == 3700.0
    given.clear()
    list(soak.attempts(["R1", "R4"], 100.0, True))
    assert given == {"R4": 50.0, "R1": 25.0}  # R4 has taken all the time, and the other one still gets some


@pytest.mark.parametrize(("answered", "holds"), [(42.0, True), (35.0, False)])
def test_overload_is_held_to_a_part_of_the_possible_answers(
    soak: ModuleType, monkeypatch: pytest.MonkeyPatch, answered: float, holds: bool
) -> None:
    table = f"| timeout, ms | requests/s | possible | HAMi |\n|---|---|---|---|\n| 40 | 75 | 43.5 | {answered} |\n"
    monkeypatch.setattr(soak, "output_of", lambda command: table)
    if holds:
        assert soak.overload(18.0, True)["of the possible answers, least"] == 0.97
    else:
        with pytest.raises(RuntimeError, match=r"only 0\.80 of the possible answers, promised 0\.9"):
            soak.overload(18.0, True)
    assert soak.overload(18.0, False)["loads"] == 1


def test_a_suite_that_outlasts_its_time_is_ended_with_what_it_has_started(soak: ModuleType, tmp_path: Path) -> None:
    started = "import subprocess, sys; child = subprocess.Popen(['sleep', '1000']); print(child.pid, flush=True)"
    text = soak.output_within([sys.executable, "-c", f"{started}; child.wait()"], 3.0, {}, tmp_path)
    state = Path(f"/proc/{int(text)}/stat")
    while state.is_file() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)  # it is ended, and its new parent has not waited for it
