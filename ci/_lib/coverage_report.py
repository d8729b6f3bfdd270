"""Line coverage of the core, the package and the plugins by their tests, written to tests/coverage.md.

The tier starts this module in an environment of its own: python -m _lib.coverage_report
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from hami_build.steps import environment, guarded, run, step

from . import environments, in_place, pytest_jobs, runners
from .affected import everything
from .bootstrap import base_python
from .paths import CACHE, ROOT
from .totals import Totals

WORK = CACHE / "coverage"
BUILD = CACHE / "build" / "coverage"
PAGE = ROOT / "tests" / "coverage.md"
COMPILER = ("-DCMAKE_C_COMPILER=gcc", "-DCMAKE_CXX_COMPILER=g++")
Lines = dict[str, tuple[int, int]]  # by file: lines that ran, and all that can
TITLE = """\
# Line coverage

`ci/test coverage` writes this page; do not edit it. The tests of the core and of the plugins run on a development
build. The tests that need wheels, other systems or a GPU are not included.
"""


def measure(totals: Totals) -> None:
    """Run everything in the environment of this tier and count it as one check."""
    if not shutil.which("g++"):
        totals.skip("coverage", "g++ is missing (Debian, Ubuntu: apt install g++)")
        return
    python = environments.ensure("coverage", base_python())
    done = subprocess.run([str(python), "-m", "_lib.coverage_report"], cwd=ROOT / "ci", env=environment(), check=False)
    totals.check(done.returncode == 0, "coverage: see above")


def main() -> int:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    for data in BUILD.rglob("*.gcda"):
        data.unlink()
    in_place.build("_core", "hami_tests", folder=BUILD, flags="-O0 -g --coverage", compiler=COMPILER)
    left_out = in_place.link()
    runners.doctest(BUILD / "tests" / "cpp" / "hami_tests", "cpp", Totals())
    run_python(left_out)
    PAGE.write_text(page(cpp_lines(), python_lines()), "utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}")
    return 0


def run_python(left_out: Mapping[str, str]) -> None:
    """Run the tests of package and plugins, subprocesses included.

    Some tests fail because they are measured: they limit the time or the imports of a program. Other tiers run them.
    """
    settings = WORK / "coveragerc"
    settings.write_text(
        "[run]\nparallel = true\npatch = subprocess, _exit\n"
        f"data_file = {WORK}/data\nsource_pkgs = {','.join(['hami', *packages(left_out)])}\n",
        "utf-8",
    )
    files = pytest_jobs.test_files(ROOT, everything(ROOT).files)
    chosen = [file for file in files if not file.startswith(("tests/ci/", "tests/abi/"))]
    present = [file for file in chosen if not any(f"/{name}/" in file for name in left_out)]
    os.environ["COVERAGE_RCFILE"] = str(settings)
    jobs = pytest_jobs.plan(present, {}, Path(sys.executable))
    for job in jobs:
        job.runner = ["-m", "coverage", "run", "-m", "pytest"]
    with step("running the tests of the package and the plugins"):
        pytest_jobs.run_jobs(jobs, remembering=False)


def packages(left_out: Mapping[str, str]) -> list[str]:
    from . import plugin_wheels

    return [in_place.package_of(folder).name for folder in plugin_wheels.folders() if folder.name not in left_out]


def cpp_lines() -> Lines:
    report = WORK / "cpp.json"
    gcovr = Path(sys.executable).with_name("gcovr")
    command = [gcovr, "--root", ROOT, "--object-directory", BUILD, "--filter", f"{ROOT}/hami-core/"]
    command += ["--exclude", f"{ROOT}/hami-core/docs/"]
    run([*command, "--gcov-ignore-parse-errors", "--json-summary", report], log="coverage-gcovr")
    files = json.loads(report.read_text("utf-8"))["files"]
    return {file["filename"]: (file["line_covered"], file["line_total"]) for file in files}


def python_lines() -> Lines:
    report = WORK / "python.json"
    coverage = [sys.executable, "-m", "coverage"]
    env = environment(COVERAGE_RCFILE=str(WORK / "coveragerc"))
    run([*coverage, "combine", WORK], log="coverage-combine", env=env)
    run([*coverage, "json", "-o", report], log="coverage-json", env=env)
    files = json.loads(report.read_text("utf-8"))["files"]
    found = {}
    for name, file in files.items():
        path = Path(name) if Path(name).is_absolute() else ROOT / "ci" / name
        summary = file["summary"]
        found[str(path.resolve().relative_to(ROOT))] = (summary["covered_lines"], summary["num_statements"])
    return found


def room_of(file: str) -> str:
    """The part of the core or the Python package that a file belongs to."""
    parts = PurePosixPath(file).parts
    if parts[:2] == ("hami-core", "src"):
        return f"core: {parts[2]}"
    if parts[:3] == ("hami-core", "python", "bind"):
        return "core: Python binding"
    if parts[:3] == ("hami-core", "python", "hami"):
        return ".".join(parts[2:-1])
    if parts[0] == "hami-core":
        return f"core: {parts[1]}"
    return parts[3] if parts[0] == "hami-plugins" else parts[0]


def summed(lines: Lines) -> dict[str, tuple[int, int]]:
    groups: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for file, counts in lines.items():
        groups[room_of(file)].append(counts)
    return {name: (sum(c for c, _ in each), sum(n for _, n in each)) for name, each in sorted(groups.items())}


def page(cpp: Lines, python: Lines) -> str:
    parts = [TITLE]
    for title, column, lines in (("C++", "room", cpp), ("Python", "package", python)):
        groups = summed(lines)
        total = (sum(c for c, _ in groups.values()), sum(n for _, n in groups.values()))
        parts += [f"## {title}", table(column, {**groups, "all": total}.items())]
    return "\n".join(parts)


def table(column: str, rows: Iterable[tuple[str, tuple[int, int]]]) -> str:
    lines = [f"| {column} | lines | covered |", "|---|---:|---:|"]
    lines += [f"| {name} | {total} | {100 * covered / total:.0f} % |" for name, (covered, total) in rows if total]
    return "\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(guarded(main))
