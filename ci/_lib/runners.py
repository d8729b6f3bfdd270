"""Runs test programs, shows their output and counts the tests."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hami_build.steps import environment

from .totals import Totals

DOCTEST_FAILURE = re.compile(r"TEST CASE: +(.+)$", re.MULTILINE)
DOCTEST_TOTALS = re.compile(r"test cases:\s*(\d+) \|\s*(\d+) passed \|\s*(\d+) failed")

# A test that hangs prints the stack of every thread and ends its run.
SETTINGS = ("-q", "--no-header", "-p", "no:cacheprovider", "-o", "faulthandler_exit_on_timeout=true")
HANGS_AFTER_S = 180
CPP_TIMEOUT_S = 1200  # also under a sanitizer, beside other tiers


@dataclass(frozen=True)
class Options:
    pytest: tuple[str, ...] = ()  # arguments for every run of pytest


def pytest(
    python: Path,
    tests: Sequence[Path],
    tier: str,
    totals: Totals,
    options: Options,
    env: Mapping[str, str] | None = None,
    *,
    hangs_after_s: int = HANGS_AFTER_S,
) -> None:
    """Run `tests` (files or folders of one project) with their output shown; if pytest cannot start, that is a failure.

    `hangs_after_s` is longer for tests that wait for downloads or other programs.
    """
    with tempfile.TemporaryDirectory() as work:
        report = Path(work) / "report.xml"
        command: list[str | Path] = [python, "-m", "pytest", *SETTINGS, f"--junitxml={report}"]
        command += ["-o", f"faulthandler_timeout={hangs_after_s}"]
        result = subprocess.run(
            [*command, *options.pytest, *tests],
            cwd=configured_folder(tests[0]),
            env=environment() if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            check=False,
        )
        cases = totals.add_junit(tier, report) if report.is_file() else 0
    if options.pytest and result.returncode == 5:
        return  # -k selected none of these tests
    if result.returncode not in (0, 1) or cases == 0:
        totals.check(False, f"{tier}: pytest ended with {result.returncode} after {cases} tests of {tests[0]}")


def configured_folder(tests: Path) -> Path:
    """Return the folder of the pyproject.toml that configures these tests."""
    return next(folder for folder in tests.parents if (folder / "pyproject.toml").is_file())


def doctest(program: Path, tier: str, totals: Totals, *, show: bool = True) -> str:
    """Run a C++ test program and return its output; its test cases are counted as pytest's are."""
    try:
        result = subprocess.run(
            [program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=CPP_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as hung:
        output = hung.stdout if isinstance(hung.stdout, str) else (hung.stdout or b"").decode(errors="replace")
        print(output if show else "", flush=True)
        totals.check(False, f"{tier}: {program.name} did not end within {CPP_TIMEOUT_S} s")
        return output
    if show:
        print(result.stdout, end="", flush=True)
    found = DOCTEST_TOTALS.search(result.stdout)
    passed, failed = (int(found.group(2)), int(found.group(3))) if found else (0, 0)
    totals.passed += passed
    names = list(dict.fromkeys(DOCTEST_FAILURE.findall(result.stdout)))
    totals.failed += [f"{tier}: {names[i] if i < len(names) else 'a C++ test case, see above'}" for i in range(failed)]
    if (result.returncode != 0 and failed == 0) or passed + failed == 0:
        where = f" in {names[-1]}" if names else ""
        totals.check(False, f"{tier}: {program.name} ended with {result.returncode}{where}")
    return result.stdout
