"""Runs test programs, shows their output and counts the tests."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from hami_build.steps import environment

from .paths import ROOT
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
    runner: Sequence[str] = ("-m", "pytest"),
    quiet: bool = False,
) -> None:
    """Run `tests` (files or folders of one project) with their output shown; if pytest cannot start, that is a failure.

    `hangs_after_s` is longer for tests that wait for downloads or other programs. If `quiet`, output is shown only if a
    test fails.
    """
    with tempfile.TemporaryDirectory() as work:
        report = Path(work) / "report.xml"
        command: list[str | Path] = [python, *runner, *SETTINGS, f"--junitxml={report}"]
        command += ["-o", f"faulthandler_timeout={hangs_after_s}"]
        result = subprocess.run(
            [*command, *options.pytest, *tests],
            cwd=configured_folder(tests[0]),
            env=environment() if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if quiet else None,
            stderr=subprocess.STDOUT if quiet else None,
            text=True,
            errors="replace",
            check=False,
        )
        if quiet and result.returncode != 0:
            print(result.stdout, end="", flush=True)
        cases = totals.add_junit(tier, report) if report.is_file() else 0
    if result.returncode == 5 and (cases or options.pytest):
        return  # each file is skipped as a whole, or -k selected none of these tests
    if result.returncode not in (0, 1) or cases == 0:
        totals.check(False, f"{tier}: pytest ended with {result.returncode} after {cases} tests of {tests[0]}")


def test_files(root: Path, targets: Iterable[str]) -> list[str]:
    """Return the test files in `targets`, without those that need a GPU."""
    found: set[str] = set()
    for target in targets:
        path = root / target
        files = [path] if path.is_file() else [file for file in path.rglob("test_*.py") if "gpu" not in file.parts]
        found.update(str(file.relative_to(root)) for file in files)
    return sorted(found)


def in_parallel(
    files: Iterable[str], python_of: Callable[[str], Path], totals: Totals, runner: Sequence[str] = ("-m", "pytest")
) -> None:
    """Run test files with pytest-xdist, the files of one folder at a time: two have modules of one name."""
    for folder, group in groupby(sorted(files), key=lambda file: str(Path(file).parent)):
        tests = [ROOT / file for file in group]
        workers = min(os.cpu_count() or 1, len(tests))
        options = Options(("-n", str(workers), "--dist", "loadfile") if workers > 1 else ())
        pytest(python_of(folder), tests, folder, totals, options, runner=runner, quiet=True)


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
