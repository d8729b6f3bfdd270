"""The closing lines name what failed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from _lib import in_place, runners, tiers
from _lib.paths import ROOT
from _lib.runners import Totals

# What doctest prints, and what the subset of it in tests/cpp/fallback prints.
SAYS = (
    "./tests/test_dag.cpp:150:\nTEST CASE:  the first error wins\n\n./tests/test_dag.cpp:167: ERROR: CHECK( a )",
    "tests/cpp/test_dag.cpp:150: TEST CASE: the first error wins\ntests/cpp/test_dag.cpp:167: ERROR: CHECK( a )",
)


@pytest.mark.parametrize("says", SAYS)
def test_a_failed_cpp_test_case_is_named(says: str, tmp_path: Path) -> None:
    program = tmp_path / "tests"
    line = "[doctest] test cases:     2 |     1 passed | 1 failed | 0 skipped"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\n{line}\nEND\nexit 1\n")
    program.chmod(0o755)
    totals = Totals()
    runners.doctest(program, "tsan", totals)
    assert totals.failed == ["tsan: the first error wins"]
    assert totals.passed == 1


def test_the_cpp_test_case_that_ends_the_program_is_named(tmp_path: Path) -> None:
    program = tmp_path / "tests"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{SAYS[1]}\nEND\nexit 3\n")
    program.chmod(0o755)
    totals = Totals()
    runners.doctest(program, "dev", totals)
    assert totals.failed == ["dev: tests ended with 3 in the first error wins"]


def test_a_test_that_hangs_is_ended_with_its_stack(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_x.py").write_text("import threading\ndef test_waits(): threading.Event().wait()\n")
    totals = Totals()
    runners.pytest(Path(sys.executable), [folder], "x", totals, hangs_after_s=1)
    assert totals.failed == [f"x: a test took longer than 1 s, or pytest could not start, see above: {folder}"]
    assert 'test_x.py", line 2 in test_waits' in capfd.readouterr().err


def what_pythons_tests(
    monkeypatch: pytest.MonkeyPatch, minors: list[int]
) -> tuple[Totals, list[tuple[str, list[Path]]]]:
    """Return what the tier `pythons` counts where these CPythons are found, and the tests that it runs on each."""
    here = tiers.current_interpreter()
    ran: list[tuple[str, list[Path]]] = []
    found = [replace(here, version=(3, minor, 0)) for minor in minors]
    monkeypatch.setattr(tiers.interpreters, "find", lambda: (found, []))
    monkeypatch.setattr(tiers.dist, "build", lambda interpreters: None)
    monkeypatch.setattr(tiers, "test_environment", lambda interpreter: interpreter.tag)
    monkeypatch.setattr(tiers, "pytest", lambda python, tests, name, totals, options: ran.append((python, tests)))
    totals = Totals()
    tiers.pythons(totals, ())
    return totals, ran


def test_the_oldest_and_the_newest_python_run_all_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    totals, ran = what_pythons_tests(monkeypatch, [10, 11, 12, 13])
    whole, smoke = [ROOT / "tests" / "python"], [ROOT / file for file in tiers.SMOKE_FILES]
    assert ran == [("cp310", whole), ("cp311", smoke), ("cp312", smoke), ("cp313", whole)]
    assert totals.skipped == []


def test_a_single_python_runs_all_tests_and_the_others_are_skipped_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    totals, ran = what_pythons_tests(monkeypatch, [11])
    assert ran == [("cp311", [ROOT / "tests" / "python"])]
    reason = "no CPython except cp311 is found here; uv python install 3.10 3.12 3.13"
    assert totals.skipped == [("pythons", reason)]


def test_without_a_free_threaded_python_its_tier_is_skipped_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers.interpreters, "find", lambda: ([tiers.current_interpreter()], []))
    totals = Totals()
    tiers.TIERS["free-threaded"].run(totals, ())
    reason = "no free-threaded CPython is found here; uv python install 3.14t"
    assert (totals.passed, totals.failed, totals.skipped) == (0, [], [("free-threaded", reason)])


@pytest.mark.parametrize("options", ["'--disable-gil' '--with-thread-sanitizer'", "'--disable-gil'"])
def test_a_python_shows_its_locks_if_it_is_compiled_for_the_sanitizer(tmp_path: Path, options: str) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "{options}"\n')
    python.chmod(0o755)
    assert tiers.shows_its_locks(python) == ("thread" in options)


@pytest.mark.parametrize("tier", ["python-asan", "python-tsan"])
def test_without_a_compiler_with_sanitizers_the_stress_in_python_is_skipped_aloud(
    monkeypatch: pytest.MonkeyPatch, tier: str
) -> None:
    monkeypatch.setattr(tiers, "links", lambda compiler, sanitizer: False)
    totals = Totals()
    tiers.TIERS[tier].run(totals, ())
    reason = "g++ is missing or cannot link such a program (Debian, Ubuntu: apt install g++)"
    assert totals.skipped == [(tier, reason)]


def test_a_python_that_does_not_start_under_a_sanitizer_gives_the_reason(tmp_path: Path) -> None:
    program = tmp_path / "python"
    says = "FATAL: ThreadSanitizer: unexpected memory mapping 0x1-0x2"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 66\n")
    program.chmod(0o755)
    assert in_place.why_unusable(program, {}) == says
    assert in_place.why_unusable(Path(sys.executable), {}) == ""


def test_skips_are_grouped_by_reason_and_the_slowest_tests_are_named() -> None:
    totals = Totals(passed=3)
    totals.skip("plugins: a::b", "no GPU")
    totals.skip("python: a::c", "docs/x.md:12: needs fastapi, which is not installed")
    totals.skip("python: a::d", "docs/y.md:3: needs fastapi, which is not installed")
    totals.failed.append("python: a::e")
    totals.durations = [(float(number), f"test {number}") for number in range(12)]
    lines = totals.closing().splitlines()
    assert lines[:2] == ["slowest tests:", "   11.0 s  test 11"]
    assert lines[11:14] == [
        "SKIPPED [2] python: needs fastapi, which is not installed",
        "SKIPPED [1] plugins: no GPU",
        "FAILED python: a::e",
    ]
    assert "1 failed, 3 passed, 3 skipped in " in lines[14]
