"""Native plugins compiled under AddressSanitizer and UndefinedBehaviorSanitizer, for a Python that is not."""

from __future__ import annotations

import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hami_build import development
from hami_build.project import Project
from hami_build.steps import environment

CHECKS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
OF_C = {"clang++": "clang", "g++": "gcc"}  # the compiler of C with the same runtimes
PACKAGES = "clang libclang-rt-14-dev, or g++"
# Python frees nothing when it ends, tests of crashes expect the signal, and other libraries of the process may have an
# operator new or delete of their own.
OPTIONS = "detect_leaks=0:handle_segv=0:handle_sigfpe=0:alloc_dealloc_mismatch=0"


@dataclass(frozen=True)
class Sanitizer:
    """A compiler with shared runtimes of the sanitizers, which a process loads before it loads the plugin."""

    compiler: str
    flags: str
    runtimes: tuple[Path, ...]

    def settings(self) -> list[str]:
        """Return the options for cmake."""
        return [
            *("-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1"),
            *(f"-DCMAKE_CXX_COMPILER={self.compiler}", f"-DCMAKE_CXX_FLAGS={self.flags}"),
            *(f"-DCMAKE_C_COMPILER={OF_C[self.compiler]}", f"-DCMAKE_C_FLAGS={self.flags}"),
            "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O1 -g1",
            *development.launcher_settings(),
        ]

    def variables(self) -> dict[str, str]:
        """Return the environment variables for Python programs that use the plugin."""
        return {
            "LD_PRELOAD": ":".join(map(str, self.runtimes)),
            "ASAN_OPTIONS": OPTIONS,
            "PYTHONMALLOC": "malloc",  # so that every object of Python is a block of its own
            "TBB_ENABLE_SANITIZERS": "1",  # else the TBB of OpenVINO loads libraries with RTLD_DEEPBIND
        }


def find() -> Sanitizer | None:
    """Return clang++ or g++ with its runtimes; None if neither is installed completely."""
    clang = _library("clang++", f"libclang_rt.asan-{platform.machine()}.so")
    if clang:
        return Sanitizer("clang++", f"{CHECKS} -shared-libsan", (clang,))
    # libstdc++ is loaded first too, so that the sanitizer finds how exceptions are thrown.
    gcc = [_library("g++", name) for name in ("libasan.so", "libubsan.so", "libstdc++.so")]
    found = tuple(each for each in gcc if each)
    return Sanitizer("g++", CHECKS, found) if len(found) == len(gcc) else None


def _library(compiler: str, name: str) -> Path | None:
    if not shutil.which(compiler):
        return None
    said = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False)
    found = Path(said.stdout.strip())
    return found.resolve() if found.is_absolute() else None


def build(project: Project, work: Path, cmake_dir: Path, sanitizer: Sanitizer) -> Path:
    """Compile a native plugin; return a folder for PYTHONPATH with its packages.

    Raises:
        Failure: It does not compile.
    """
    env = environment(PATH=development.search_path())
    stage = development.compile_project(project, work, cmake_dir, sanitizer.settings(), env)
    site = work / "site"
    shutil.rmtree(site, ignore_errors=True)
    for name, folder in project.packages.items():
        shutil.copytree(folder, site / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copytree(stage, site, dirs_exist_ok=True)
    return site
