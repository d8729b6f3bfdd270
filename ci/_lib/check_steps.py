"""The steps of ci/check: each is timed, and one that fails does not stop the others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hami_build.steps import Failure, environment

from . import in_place, runners
from .affected import Selection
from .environments import ensure
from .paths import CACHE, ROOT

Work = Callable[[], tuple[bool, str]]  # whether it passed, and what to print: one line of detail, or what failed


class Steps:
    """Prints how long each step took, and remembers those that failed."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.failed: list[str] = []

    def take(self, name: str, work: Work) -> bool:
        start = time.monotonic()
        try:
            passed, detail = work()
        except Failure as failure:
            passed, detail = False, str(failure)
        if "\n" in detail:
            print(detail.rstrip(), flush=True)
            detail = ""
        line = f"{'ok    ' if passed else 'FAILED'} {name:14}{time.monotonic() - start:6.1f} s  {detail}"
        print(line.rstrip(), flush=True)
        self.failed += [] if passed else [name]
        return passed

    def closing(self) -> str:
        result = f"{', '.join(self.failed)} failed" if self.failed else "everything passed"
        return f"\n{result} in {time.monotonic() - self.started:.1f} s"


def hooks(python: Path, *options: str, files: Sequence[str], capture: bool = False) -> tuple[bool, str]:
    """Run the hooks of .pre-commit-config.yaml that `options` choose, with the tools in the environment of `python`."""
    env = environment(
        PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        PRE_COMMIT_HOME=str(CACHE / "pre-commit"),
        MYPY_CACHE_DIR=str(CACHE / "mypy"),
        RUFF_CACHE_DIR=str(CACHE / "ruff"),
    )
    command = [str(python), "-m", "pre_commit", "run", "--color", "never", *options, "--files", *files]
    output = subprocess.PIPE if capture else None
    done = subprocess.run(command, cwd=ROOT, env=env, check=False, text=True, stdout=output, stderr=subprocess.STDOUT)
    return done.returncode == 0, done.stdout if capture and done.returncode else ""


def run_tests(steps: Steps, tests: Selection) -> None:
    """Build what the tests need, and run them."""
    files = runners.test_files(ROOT, tests.files)
    pages = sorted(tests.pages)
    left_out: dict[str, str] = {}
    needs_module = bool(pages) or any(not file.startswith("tests/ci/") for file in files)
    targets = ["_core"] * needs_module + ["hami_tests"] * tests.cpp

    def build() -> tuple[bool, str]:
        in_place.build(*targets)
        if needs_module:
            left_out.update(in_place.link(lambda plugin: any(f"/{plugin.name}/" in file for file in files)))
        return True, ", ".join(targets)

    if targets and not steps.take("build", build):
        return
    if tests.cpp:
        steps.take("C++ tests", run_cpp)
    present = [file for file in files if not any(f"/{name}/" in file for name in left_out)]
    if present or pages:
        steps.take("Python tests", lambda: run_python(present, pages))
    for name in sorted({name for name in left_out for file in files if f"/{name}/" in file}):
        print(f"not run: the tests of {name}: {left_out[name]}; ci/test plugins runs them")
    if tests.tiers:
        print(f"not run: tests that need more than a development build: ci/test {' '.join(sorted(tests.tiers))}")


def run_cpp() -> tuple[bool, str]:
    totals = runners.Totals()
    output = runners.doctest(in_place.BUILD / "tests" / "cpp" / "hami_tests", "cpp", totals, show=False)
    return not totals.failed, output if totals.failed else f"{totals.passed} passed"


def run_python(files: list[str], pages: list[str]) -> tuple[bool, str]:
    here = Path(sys.executable)
    tools = ensure("tools") if any(file.startswith("tests/ci/") for file in files) else here
    totals = runners.Totals()
    if pages:
        chosen = ("-k", " or ".join(Path(page).stem for page in pages))
        runners.pytest(here, [ROOT / "tests" / "python" / "test_docs.py"], "documents", totals, chosen, quiet=True)
    runners.in_parallel(files, lambda folder: tools if folder == "tests/ci" else here, totals)
    return not totals.failed, f"{totals.counts()} of {len(files)} files and {len(pages)} documents"
