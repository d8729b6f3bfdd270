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
    assert [(each.name, each.seconds) for each in seen] == [
        ("R4", 1200.0),
        ("R1", 800.0),
        ("R9", 800.0),
        ("R18", 800.0),
    ]
    assert (seen[2].state, seen[2].text) == ("not tried", "no such machine")
    assert clock.now == 3700.0
    given.clear()
    list(soak.attempts(["R1", "R4"], 100.0, True))
    assert given == {"R4": 50.0, "R1": 25.0}  # R4 has taken all the time, and the other one still gets some


@pytest.mark.parametrize(("answered", "holds"), [(42.0, True), (35.0, False)])
def test_overload_is_held_to_a_part_of_the_possible_answers(
    soak: ModuleType, monkeypatch: pytest.MonkeyPatch, answered: float, holds: bool
) -> None:
    table = f"| timeout, ms | requests/s | possible | HAMi |\n|---|---|---|---|\n| 40 | 75 | 43.5 | {answered} |\n"
    monkeypatch.setattr(soak, "output_of", lambda command, seconds: table)
    if holds:
        assert soak.overload(18.0, True)["of the possible answers, least"] == 0.97
    else:
        with pytest.raises(RuntimeError, match=r"only 0\.80 of the possible answers, promised 0\.9"):
            soak.overload(18.0, True)
    assert soak.overload(18.0, False)["loads"] == 1


@pytest.mark.parametrize(
    ("closing", "passed"),
    [
        ("3 passed in 0.10s", 3),
        ("1 failed, 3 passed in 0.10s", 3),  # the status of pytest says so
        ("3 passed, 1 warning in 61.00s (0:01:01)\na warning at the end", 3),
        ("3 passed, 1 skipped in 0.10s", None),
        ("2 skipped in 0.10s", None),
        ("no tests ran in 0.01s", None),
        ("", None),
    ],
)
def test_skipped_and_absent_tests_keep_no_promise(soak: ModuleType, closing: str, passed: int | None) -> None:
    if passed:
        assert soak.passed_by(f"3 dots\n{closing}\n") == passed
    else:
        with pytest.raises(RuntimeError, match="tests are skipped, or none ran"):
            soak.passed_by(f"3 dots\n{closing}\n")


def test_promises_that_were_not_tried_are_counted_apart_and_named(
    soak: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(seconds: float, strict: bool) -> dict[str, str]:
        raise RuntimeError("a long\noutput\nbroken: a thread is left\nended with 1")

    def is_missing(seconds: float, strict: bool) -> dict[str, str]:
        raise soak.Missing("no such machine")

    attempts = {"R1": lambda seconds, strict: {"requests": 7}, "R2": fails, "R3": is_missing}
    attempts["R4"] = lambda seconds, strict: {"tests": 5, "not tried": "tsan: no compiler"}
    monkeypatch.setattr(soak, "PROMISES", {name: soak.Promise("of " + name, each) for name, each in attempts.items()})
    tried = list(soak.attempts(list(attempts), 1.0, True))
    assert [each.row().split(" | ")[-1] for each in tried] == [
        "requests 7 |",
        "BROKEN: a thread is left |",
        "not tried: no such machine |",
        "tests 5, not tried tsan: no compiler |",
    ]
    assert soak.summary(tried).splitlines() == [
        "2 of 4 promises hold, 1 broken, 1 not tried, 1 tried in part",
        "R4: not tried tsan: no compiler",
        "R3: not tried: no such machine",
    ]


def test_a_part_that_was_not_tried_is_named_with_its_part(soak: ModuleType) -> None:
    tried = soak.in_turn(
        pipes=lambda seconds, strict: {"requests": 7, "not tried": "no clients"},
        servers=lambda seconds, strict: {"requests": 9, "not tried": "no server"},
        loops=lambda seconds, strict: {"requests": 1},
    )
    assert tried(3.0, True) == {
        "pipes: requests": 7,
        "servers: requests": 9,
        "loops: requests": 1,
        "not tried": "pipes: no clients; servers: no server",
    }


def test_each_file_of_tests_has_a_log_of_its_own(soak: ModuleType) -> None:
    files = [*ROOT.glob("tests/*/test_*.py"), *ROOT.glob("hami-plugins/*/tests/test_*.py")]
    files += sorted((ROOT / "tests" / "reliability").glob("*.py"))
    logs = {soak.log_of(file) for file in files}
    assert len(logs) == len(files)
    assert soak.log_of(ROOT / "tests" / "python" / "test_memory.py").name == "soak-tests-python-test_memory.log"


@pytest.mark.parametrize(
    ("printed", "figures"),
    [
        ("code by names of HAMi: import 3\n2 passed, 1 skipped in 0.10s\n", {"test files": 4}),
        ("code by names of HAMi: import 3\n1 failed, 1 passed in 0.10s\n", {"test files": 4}),
        (
            "code by names of HAMi: import 3\n1 skipped in 0.10s\n",
            {"test files": 0, "not tried": "no file of tests ran to its end under the watch"},
        ),
        (
            "code by names of HAMi: import 0\n1 error in 0.10s\n",
            {"test files": 0, "not tried": "no file of tests ran to its end under the watch"},
        ),
    ],
)
def test_only_files_with_tests_that_pass_are_counted_under_the_watch(
    soak: ModuleType, monkeypatch: pytest.MonkeyPatch, printed: str, figures: dict[str, int | str]
) -> None:
    clock, limits = FakeTime(), []

    def takes_its_limit(command: object, seconds: float, *_: object) -> tuple[int, str]:
        limits.append(seconds)
        clock.now += seconds
        return 0, printed

    monkeypatch.setattr(soak, "program", lambda name: lambda seconds, strict: {})
    monkeypatch.setattr(soak, "run_within", takes_its_limit)
    monkeypatch.setattr(soak, "time", clock)
    assert soak.code_from_data(200.0, True) == figures
    assert limits == [25.0] * 4  # a file that hangs leaves time to three others


def test_data_that_chooses_code_in_a_suite_breaks_the_promise(
    soak: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak, "program", lambda name: lambda seconds, strict: {})
    monkeypatch.setattr(soak, "run_within", lambda *_: (1, "CODE FROM DATA: exec in file.py:planted: 'this'"))
    with pytest.raises(RuntimeError, match="CODE FROM DATA: exec"):
        soak.code_from_data(200.0, True)


def test_free_threaded_python_is_sought_before_anything_is_made(
    soak: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hami_build import interpreters

    monkeypatch.setattr(interpreters, "find", lambda: ([], []))
    monkeypatch.setattr(soak, "output_of", None)
    with pytest.raises(soak.Missing, match="no free-threaded CPython is found here"):
        soak.free_threaded(60.0, True)


def test_a_suite_that_outlasts_its_time_is_ended_with_what_it_has_started(soak: ModuleType, tmp_path: Path) -> None:
    program = tmp_path / "starts_another.py"
    program.write_text(
        "import subprocess; child = subprocess.Popen(['sleep', '1000']); print(child.pid, flush=True); child.wait()"
    )
    log = tmp_path / "logs" / "starts_another.log"
    status, text = soak.run_within([sys.executable, program], 3.0, log)
    assert status is None
    assert log.read_text() == text
    state = Path(f"/proc/{int(text)}/stat")
    while state.is_file() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)  # it is ended, and its new parent has not waited for it
