"""Runs test files in several parallel processes of pytest, balanced by how long each file took in its last run."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from hami_build.steps import environment

from .paths import CACHE, ROOT
from .runners import SETTINGS, configured_folder

DURATIONS = CACHE / "test-durations.json"
UNKNOWN_S = 1.0  # assumed for a file that has never run
SMALLEST_JOB_S = 4.0  # starting another pytest for less than this is slower
HANGS_AFTER_S = 120


@dataclass
class Job:
    """One process of pytest."""

    python: Path
    folder: Path  # with the pyproject.toml that configures the tests
    targets: list[str]
    options: list[str] = field(default_factory=list)
    seconds: float = 0.0  # expected
    runner: list[str] = field(default_factory=lambda: ["-m", "pytest"])

    def command(self, report: Path) -> list[str]:
        settings = [*SETTINGS, "-o", f"faulthandler_timeout={HANGS_AFTER_S}", "-o", "junit_family=xunit1"]
        command = [self.python, *self.runner, *settings, f"--junitxml={report}", *self.options]
        return list(map(str, [*command, *(ROOT / target for target in self.targets)]))


@dataclass
class Outcome:
    job: Job
    passed: bool
    output: str
    counts: dict[str, int]
    durations: dict[str, float]  # by file


def test_files(root: Path, targets: Iterable[str]) -> list[str]:
    """Return the test files in `targets`, without those that need a GPU."""
    found: set[str] = set()
    for target in targets:
        path = root / target
        files = [path] if path.is_file() else [file for file in path.rglob("test_*.py") if "gpu" not in file.parts]
        found.update(str(file.relative_to(root)) for file in files)
    return sorted(found)


def split(files: Sequence[str], durations: Mapping[str, float], parts: int) -> list[list[str]]:
    """Divide `files` into at most `parts` lists that take about as long; the longest files are placed first."""
    total = sum(durations.get(file, UNKNOWN_S) for file in files)
    count = max(1, min(parts, len(files), int(total / SMALLEST_JOB_S)))
    lists: list[list[str]] = [[] for _ in range(count)]
    loads = [0.0] * count
    for file in sorted(files, key=lambda file: (-durations.get(file, UNKNOWN_S), file)):
        least = loads.index(min(loads))
        lists[least].append(file)
        loads[least] += durations.get(file, UNKNOWN_S)
    return [sorted(each) for each in lists if each]


def known_durations() -> dict[str, float]:
    try:
        found: dict[str, float] = json.loads(DURATIONS.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def remember(durations: Mapping[str, float]) -> None:
    DURATIONS.write_text(json.dumps({**known_durations(), **durations}, indent=1, sort_keys=True), "utf-8")


def plan(files: Sequence[str], python_of: Mapping[str, Path], default: Path) -> list[Job]:
    """Return the jobs for these files, split over the processors. `python_of` is by the start of a path.

    A job has the files of one folder: two folders have modules of the same name, such as conftest.
    """
    groups: dict[tuple[Path, Path], list[str]] = defaultdict(list)
    for file in files:
        python = next((python for start, python in python_of.items() if file.startswith(start)), default)
        groups[(ROOT / file).parent, python].append(file)
    durations = known_durations()
    jobs = []
    for (folder, python), members in groups.items():
        for part in split(members, durations, os.cpu_count() or 1):
            seconds = sum(durations.get(file, UNKNOWN_S) for file in part)
            jobs.append(Job(python, configured_folder(folder / "x"), part, seconds=seconds))
    return sorted(jobs, key=lambda job: -job.seconds)


def run_job(job: Job) -> Outcome:
    with tempfile.TemporaryDirectory() as work:
        report = Path(work) / "report.xml"
        done = subprocess.run(
            job.command(report),
            cwd=job.folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        counts, durations = read_report(report, job)
    empty = done.returncode == 5 and bool(job.options or counts["skipped"])  # files that are skipped as a whole
    return Outcome(job, done.returncode == 0 or empty, done.stdout, counts, durations)


def read_report(report: Path, job: Job) -> tuple[dict[str, int], dict[str, float]]:
    """Return the number of passed, failed and skipped tests, and the seconds that each file took."""
    counts, durations = {"passed": 0, "failed": 0, "skipped": 0}, dict.fromkeys(job.targets, 0.0)
    if not report.is_file():
        return counts, {}
    for case in ElementTree.parse(report).iter("testcase"):
        failed = case.find("failure") is not None or case.find("error") is not None
        counts["failed" if failed else "skipped" if case.find("skipped") is not None else "passed"] += 1
        file = str((job.folder / (case.get("file") or "")).relative_to(ROOT))
        durations[file] = durations.get(file, 0.0) + float(case.get("time") or 0)
    return counts, {} if job.options else {file: round(seconds, 2) for file, seconds in durations.items()}


def run_jobs(jobs: Sequence[Job], *, remembering: bool = True) -> list[Outcome]:
    """Run the jobs, one for each processor at a time; the output of one that fails is shown when it ends."""
    outcomes = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for future in as_completed([pool.submit(run_job, job) for job in jobs]):
            outcome = future.result()
            outcomes.append(outcome)
            if not outcome.passed:
                print(outcome.output, end="", flush=True)
    if remembering:
        remember({file: seconds for outcome in outcomes for file, seconds in outcome.durations.items()})
    return outcomes
