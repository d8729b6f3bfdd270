"""Runs test programs and whole tiers, shows their output, and counts what they found."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from hami_build.steps import Failure, environment

from .paths import ROOT

DOCTEST_FAILURE = re.compile(r"TEST CASE: +(.+)$", re.MULTILINE)
DOCTEST_TOTALS = re.compile(r"test cases:\s*(\d+) \|\s*(\d+) passed \|\s*(\d+) failed")
# The place of a block in a document, which differs between skips with the same reason.
PLACE = re.compile(r"^\S+:\d+: ")
# A test that hangs prints the stack of every thread and ends its run.
SETTINGS = ("-q", "--no-header", "-p", "no:cacheprovider", "-o", "faulthandler_exit_on_timeout=true")
HANGS_AFTER_S = 600  # a test that compiles or installs needs minutes where other tiers use all processors
CPP_TIMEOUT_S = 1200  # also under a sanitizer, beside other tiers
SLOWEST = 10


@dataclass
class Totals:
    """The results of tests, and the closing lines with them."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)  # test or tier, and the reason
    durations: list[tuple[float, str]] = field(default_factory=list)  # of tests, in seconds
    tiers: dict[str, tuple[float, float]] = field(default_factory=dict)  # seconds and CPU seconds of each tier
    started: float = field(default_factory=time.monotonic)

    def check(self, passed: bool, what: str) -> None:
        """Count one check that is not a test of a test runner."""
        self.passed += passed
        self.failed += [] if passed else [what]

    def skip(self, what: str, reason: str) -> None:
        self.skipped.append((what, PLACE.sub("", reason)))

    def add_junit(self, tier: str, report: Path) -> int:
        """Count the test cases of a pytest report; returns how many there were."""
        cases = list(ElementTree.parse(report).getroot().iter("testcase")) if report.is_file() else []
        for case in cases:
            name = f"{tier}: {case.get('classname', '')}::{case.get('name', '')}"
            if (skip := case.find("skipped")) is not None:
                self.skip(name, skip.get("message", "no reason given"))
            else:
                self.check(case.find("failure") is None and case.find("error") is None, name)
            self.durations.append((float(case.get("time") or 0), name))
        return len(cases)

    def add(self, other: Totals) -> None:
        """Count what a tier that ran in another process found."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.durations += other.durations
        self.tiers |= other.tiers

    def counts(self) -> str:
        found = {"failed": len(self.failed), "passed": self.passed, "skipped": len(self.skipped)}
        return ", ".join(f"{count} {key}" for key, count in found.items() if count or key == "passed")

    def closing(self) -> str:
        """The times, the skips by reason, each failure, and last the totals in the form of pytest's closing line."""
        tiers = sorted(self.tiers.items(), key=lambda tier: -tier[1][0])
        lines = [f"{seconds:7.0f} s  {cpu:5.0f} s of CPU time  {name}" for name, (seconds, cpu) in tiers]
        tests = [f"{took:7.1f} s  {name}" for took, name in sorted(self.durations, reverse=True)[:SLOWEST]]
        skips: dict[str, list[str]] = defaultdict(list)
        for what, reason in self.skipped:
            skips[reason].append(what.partition(": ")[0])
        total = f" {self.counts()} in {time.monotonic() - self.started:.2f}s ".center(100, "=")
        return "\n".join(
            [
                *(["tiers:", *lines] if len(tiers) > 1 else []),
                *(["slowest tests:", *tests] if tests else []),
                *(
                    f"SKIPPED [{len(places)}] {', '.join(dict.fromkeys(places))}: {reason}"
                    for reason, places in sorted(skips.items(), key=lambda skip: (-len(skip[1]), skip[0]))
                ),
                *(f"FAILED {failure}" for failure in self.failed),
                total,
            ]
        )


# ---- test programs ----


def pytest(
    python: Path,
    tests: Sequence[Path],
    tier: str,
    totals: Totals,
    options: Sequence[str] = (),
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
            [*command, *options, *tests],
            cwd=next(folder for folder in tests[0].parents if (folder / "pyproject.toml").is_file()),
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
        cases = totals.add_junit(tier, report)
    if result.returncode == 5 and (cases or options):
        return  # each file is skipped as a whole, or -k selected none of these tests
    if result.returncode not in (0, 1) or cases == 0:
        why = f"pytest ended with {result.returncode} after {cases} tests"
        if result.returncode == 1:  # that of faulthandler too
            why = f"a test took longer than {hangs_after_s} s, or pytest could not start, see above"
        totals.check(False, f"{tier}: {why}: {tests[0]}")


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
        options = ("-n", str(workers), "--dist", "loadfile") if workers > 1 else ()
        pytest(python_of(folder), tests, folder, totals, options, runner=runner, quiet=True)


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


# ---- tiers ----


def run_tier(name: str, work: Callable[[Totals], None], totals: Totals) -> None:
    """Run a tier here, with its output shown as it is written."""
    print(f"== {name}", flush=True)
    started, cpu = time.monotonic(), sum(os.times()[:4])  # also of the processes that it waited for
    try:
        work(totals)
    except Failure as failure:
        print(failure, flush=True)
        totals.check(False, f"{name}: could not be run, see above")
    totals.tiers[name] = took = (time.monotonic() - started, sum(os.times()[:4]) - cpu)
    print(f"== {name}: {took[0]:.0f} s, {took[1]:.0f} s of CPU time", flush=True)


def run_side_by_side(commands: Mapping[str, Sequence[str]], options: Sequence[str], totals: Totals, jobs: int) -> None:
    """Run the command of each tier, at most `jobs` at a time and started in this order; add what they find to `totals`.

    A command gets `--report FILE -- OPTIONS` and pickles its totals into that file. Its output is shown when it ends.
    """
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:

        def run(name: str) -> subprocess.CompletedProcess[bytes]:
            print(f"-- {name} started", flush=True)
            command = [*commands[name], "--report", f"{folder}/{name}", "--", *options]
            return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

        running = {pool.submit(run, name): name for name in commands}
        try:
            for future in as_completed(running):
                name, done = running[future], future.result()
                print(done.stdout.decode(errors="replace"), end="", flush=True)
                if (report := Path(folder, name)).is_file():
                    totals.add(pickle.loads(report.read_bytes()))
                else:
                    totals.check(False, f"{name}: ended without a result, status {done.returncode}")
        finally:  # interrupted: the tiers that run get the signal too
            pool.shutdown(cancel_futures=True)
