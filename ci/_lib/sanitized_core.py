"""The core compiled under a sanitizer for a Python that is not: the runtime is loaded into the process first.

A tier starts this module in the environment of ci/check to compile the core: python -m _lib.sanitized_core address
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from hami_build.development import compiler_settings, place
from hami_build.steps import Failure, environment, guarded

from . import in_place
from .paths import CACHE, ROOT

COMPILER = "g++"  # its sanitizers are shared libraries, which a Python that knows nothing of them can load first
FLAGS = "-O0 -g1"  # compiles faster, and the stress test takes seconds
STRESS = ROOT / "tests" / "python" / "test_stress.py"
SUPPRESSIONS = ROOT / "tests" / "python" / "tsan.txt"


@dataclass(frozen=True)
class Sanitizer:
    flags: str  # of -fsanitize
    loaded_first: tuple[str, ...]  # libraries, as the core names them
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return CACHE / "build" / f"python-{self.flags.partition(',')[0]}"


# Python frees nothing when it ends, and libstdc++ is loaded first so that exceptions of C++ are found.
ADDRESS = Sanitizer(
    "address,undefined",
    ("libasan", "libstdc++"),
    {
        "ASAN_OPTIONS": "detect_leaks=0:alloc_dealloc_mismatch=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",  # so that every object of Python is a block of its own
    },
)
THREAD = Sanitizer("thread", ("libtsan",), {"TSAN_OPTIONS": f"suppressions={SUPPRESSIONS}"})


def build(sanitizer: Sanitizer, python: Path) -> Path:
    """Compile the core for the environment of `python`; return a folder for PYTHONPATH with the package."""
    command = [str(python), "-m", "_lib.sanitized_core", sanitizer.flags]
    if subprocess.run(command, cwd=ROOT / "ci", env=environment(), check=False).returncode:
        raise Failure(f"the core cannot be compiled with -fsanitize={sanitizer.flags}, see above")
    return sanitizer.folder / "site"


def test_environment(sanitizer: Sanitizer, site: Path) -> dict[str, str]:
    """Return the environment for Python programs that use the package in `site`."""
    module = next((site / "hami").glob("_core*.so"))
    linked = subprocess.run(["ldd", module], capture_output=True, text=True, check=True).stdout
    first = [re.search(rf"{re.escape(name)}\.so\S* => (/\S+)", linked) for name in sanitizer.loaded_first]
    paths = [found[1] for found in first if found]
    return environment(PYTHONPATH=str(site), LD_PRELOAD=":".join(paths), **sanitizer.variables)


def why_unusable(python: Path, env: dict[str, str]) -> str:
    """Return why Python does not start under the sanitizer, for example on a kernel that it does not know; else ""."""
    done = subprocess.run([python, "-c", ""], env=env, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr.strip() or f"it ended with {done.returncode}").splitlines()[0]


def main() -> int:
    sanitizer = next(each for each in (ADDRESS, THREAD) if each.flags == sys.argv[1])
    compiler = [*compiler_settings(), f"-DCMAKE_CXX_COMPILER={COMPILER}", f"-DHAMI_SANITIZE={sanitizer.flags}"]
    compiler += ["-DCMAKE_UNITY_BUILD=ON"]  # compiles in half the time
    in_place.compile_targets(["_core"], sanitizer.folder, FLAGS, compiler)
    site = sanitizer.folder / "site"
    shutil.rmtree(site, ignore_errors=True)
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(in_place.PACKAGE, site / "hami", ignore=ignored)
    place(in_place.module_in(sanitizer.folder), site / "hami")
    in_place.write_metadata(ROOT, site)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
