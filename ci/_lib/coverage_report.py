"""Line coverage of the core, the package and the plugins by their tests, written to tests/coverage.md.

The tier starts this module in an environment of its own: python -m _lib.coverage_report
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from hami_build.steps import environment, guarded, run, step

from . import dist, environments, in_place, runners
from .affected import everything
from .paths import CACHE, ROOT

WORK = CACHE / "coverage"
BUILD = CACHE / "build" / "coverage"
PAGE = ROOT / "tests" / "coverage.md"
TITLE = """\
# Line coverage

`ci/test coverage` writes this page; do not edit it. The tests of the core and of the plugins run on a development
build. The tests that need wheels, other systems or a GPU are not included.
"""


def measure(totals: runners.Totals) -> None:
    """Run everything in the environment of this tier and count it as one check."""
    if not shutil.which("g++"):
        totals.skip("coverage", "g++ is missing (Debian, Ubuntu: apt install g++)")
        return
    python = environments.ensure("coverage")
    done = subprocess.run([str(python), "-m", "_lib.coverage_report"], cwd=ROOT / "ci", env=environment(), check=False)
    totals.check(done.returncode == 0, "coverage: see above")


def main() -> int:
    """Run the tests of the core, the package and the plugins, and write the page; fail below 90 % of the core.

    Some tests fail because they are measured: they limit the time or the imports of a program. Other tiers run them.
    """
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    for data in BUILD.rglob("*.gcda"):
        data.unlink()
    compiler = ("-DCMAKE_C_COMPILER=gcc", "-DCMAKE_CXX_COMPILER=g++")
    in_place.build("_core", "hami_tests", folder=BUILD, flags="-O0 -g --coverage", compiler=compiler)
    left_out = in_place.link()
    runners.doctest(BUILD / "tests" / "cpp" / "hami_tests", "cpp", runners.Totals())
    plugins = [in_place.package_of(folder).name for folder in dist.folders() if folder.name not in left_out]
    settings = WORK / "coveragerc"
    settings.write_text(
        "[run]\nparallel = true\npatch = subprocess, _exit\nrelative_files = true\n"
        f"data_file = {WORK}/data\nsource_pkgs = {','.join(['hami', *plugins])}\n",
        "utf-8",
    )
    os.environ["COVERAGE_RCFILE"] = str(settings)
    absent = ("tests/ci/", "tests/abi/", *(f"hami-plugins/{name}/" for name in left_out))
    chosen = [file for file in runners.test_files(ROOT, everything(ROOT).files) if not file.startswith(absent)]
    with step("running the tests of the package and the plugins"):
        runner = ("-m", "coverage", "run", "-m", "pytest")
        runners.in_parallel(chosen, lambda folder: Path(sys.executable), runners.Totals(), runner)
    coverage = [sys.executable, "-m", "coverage"]
    run([*coverage, "combine", WORK], log="coverage-combine", cwd=ROOT)
    python = run([*coverage, "report", "--format=markdown"], log="coverage-report", cwd=ROOT)
    gcovr = [Path(sys.executable).with_name("gcovr"), "--root", ROOT, "--object-directory", BUILD]
    gcovr += ["--filter", f"{ROOT}/hami-core/", "--exclude", f"{ROOT}/hami-core/docs/", "--gcov-ignore-parse-errors"]
    cpp = run([*gcovr, "--markdown", "-", "--fail-under-line=90"], log="coverage-gcovr")
    PAGE.write_text(f"{TITLE}\n## C++\n\n{cpp}\n## Python\n\n{python}", "utf-8")
    run([*coverage, "report", "--include=hami-core/*", "--fail-under=90"], log="coverage-core", cwd=ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
