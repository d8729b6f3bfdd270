"""The steps of ci/check: each is timed, and one that fails does not stop the others."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hami_build.steps import Failure

from . import in_place, runners, static
from .affected import Selection
from .environments import ensure
from .paths import ROOT
from .totals import Totals

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
        if not passed:
            self.failed.append(name)
        return passed

    def closing(self) -> str:
        result = f"{', '.join(self.failed)} failed" if self.failed else "everything passed"
        return f"\n{result} in {time.monotonic() - self.started:.1f} s"


def run_static(steps: Steps, files: Sequence[str]) -> None:
    def work() -> tuple[bool, str]:
        done = static.run(Path(sys.executable), files=files, capture=True)
        return done.returncode == 0, "" if done.returncode == 0 else done.stdout

    steps.take("static checks", work)


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
    for note in sorted(tests.notes):
        print(f"not run: {note}")


def run_cpp() -> tuple[bool, str]:
    totals = Totals()
    output = runners.doctest(in_place.BUILD / "tests" / "cpp" / "hami_tests", "cpp", totals, show=False)
    return not totals.failed, output if totals.failed else f"{totals.passed} passed"


def run_python(files: list[str], pages: list[str]) -> tuple[bool, str]:
    here = Path(sys.executable)
    tools = ensure("tools") if any(file.startswith("tests/ci/") for file in files) else here
    totals = Totals()
    if pages:
        chosen = runners.Options(("-k", " or ".join(Path(page).stem for page in pages)))
        runners.pytest(here, [ROOT / "tests" / "python" / "test_docs.py"], "documents", totals, chosen, quiet=True)
    runners.in_parallel(files, lambda folder: tools if folder == "tests/ci" else here, totals)
    counts = {"passed": totals.passed, "failed": len(totals.failed), "skipped": len(totals.skipped)}
    outcome = ", ".join(f"{count} {key}" for key, count in counts.items() if count)
    return not totals.failed, f"{outcome} of {len(files)} files and {len(pages)} documents"
