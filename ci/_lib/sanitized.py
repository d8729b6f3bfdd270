"""Native plugins compiled under AddressSanitizer, for a Python that is not: its runtime is loaded into the process."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

from hami_build import zig
from hami_build.steps import environment, run, step

from . import plugin_wheels
from .in_place import package_of
from .paths import CACHE, pyproject

FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -shared-libsan"
PACKAGES = "clang libclang-rt-14-dev"
# Python frees nothing when it ends. Tests of crashes expect the signal.
OPTIONS = "detect_leaks=0:handle_segv=0:handle_sigfpe=0"


def runtime() -> Path | None:
    """Return the shared runtime of clang's AddressSanitizer; None if it is not installed."""
    if not shutil.which("clang++"):
        return None
    name = f"libclang_rt.asan-{platform.machine()}.so"
    found = Path(subprocess.run(["clang++", f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip())
    return found if found.is_absolute() else None


def build(plugin: Path) -> Path:
    """Compile a native plugin; returns a folder for PYTHONPATH with its package."""
    work = CACHE / "build" / f"asan-{plugin.name}"
    env = {**environment(), "PATH": zig.build_environment()["PATH"]}
    command = [
        *("cmake", "-S", plugin, "-B", work, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"),
        *("-DCMAKE_CXX_COMPILER=clang++", "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1", f"-DCMAKE_CXX_FLAGS={FLAGS}"),
        f"-Dhami_DIR={plugin_wheels.CMAKE_PACKAGE}",
        f"-DSKBUILD_PROJECT_VERSION={pyproject(plugin)['project']['version']}",
    ]
    with step(f"compiling {plugin.name} under AddressSanitizer"):
        run(command, log=f"{work.name}-configure", env=env)
        run(["cmake", "--build", work], log=f"{work.name}-build", env=env)
    site = work / "site"
    shutil.rmtree(site, ignore_errors=True)
    package = package_of(plugin)
    shutil.copytree(package, site / package.name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for library in work.glob("*.so"):
        shutil.copy2(library, site / package.name)
    return site


def test_environment(site: Path, loaded_first: Path) -> dict[str, str]:
    """Return the environment for Python programs that use the package in `site`."""
    return environment(
        PYTHONPATH=str(site),
        LD_PRELOAD=str(loaded_first),
        ASAN_OPTIONS=OPTIONS,
        PYTHONMALLOC="malloc",  # so that every object of Python is a block of its own
        TBB_ENABLE_SANITIZERS="1",  # else the TBB of OpenVINO loads libraries with RTLD_DEEPBIND
    )
