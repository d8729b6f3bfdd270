"""Builds hami-core: the static core once for each architecture, then one manylinux wheel for each CPython.

Finished files are kept until a source changes.
"""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

from hami_build import build_requirements, platforms, sbom, wheel_file, wheels, zig
from hami_build.interpreters import Interpreter, running
from hami_build.project import read
from hami_build.steps import exclusive, run, step

from .paths import CACHE, PACKAGING, REQUIREMENTS, ROOT, content_key, pinned

INPUTS = [
    *(ROOT / name for name in ("pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE")),
    *(ROOT / "hami-core" / name for name in ("CMakeLists.txt", "cmake", "include", "python", "src")),
    PACKAGING / "zig.cmake",
    ROOT / "ci" / "_lib" / "core_wheel.py",
    *(PACKAGING / name for name in ("pep517.py", "platforms.py", "sbom.py", "wheel_file.py", "wheels.py")),
    REQUIREMENTS / "tools.txt",
    REQUIREMENTS / "backend.txt",
]
WHEELS = CACHE / "wheels"


@cache
def key() -> str:
    return content_key(INPUTS, zig.GLIBC)


def platform_tags(architecture: str) -> list[str]:
    """Return the platform tags of a binary for glibc 2.17; older installers look for older tags."""
    return platforms.parse(f"manylinux2014_{architecture}").tags


def configure_core(architecture: str) -> Path:
    """Configure and return the build folder of the static core and its unit tests, compiled as released."""
    aim = zig.target(architecture)
    zig.warm_up(aim)
    folder = CACHE / "build" / f"core-{architecture}"
    command = [
        *("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja"),
        *(f"-DCMAKE_TOOLCHAIN_FILE={zig.TOOLCHAIN}", f"-DHAMI_ZIG_TARGET={aim}", "-DCMAKE_BUILD_TYPE=Release"),
        *("-DHAMI_PYTHON=OFF", "-DHAMI_TESTS=ON", "-DHAMI_SYSTEM_DOCTEST=OFF", "-DHAMI_WERROR=ON"),
        "-DCMAKE_UNITY_BUILD=ON",  # compiles in half the time; the preset `dev` compiles each file alone
    ]
    with step("configuring the core"):
        run(command, log=f"core-configure-{architecture}", env=zig.build_environment(aim))
    return folder


def build_target(target: str, title: str, architecture: str = zig.HOST) -> Path:
    """Compile one target of the core and return the build folder."""
    with exclusive(f"core-{architecture}"):
        folder = configure_core(architecture)
        with step(title):
            env = zig.build_environment(zig.target(architecture))
            run(["cmake", "--build", folder, "--target", target], log=f"build-{target}-{architecture}", env=env)
    return folder


def static_core(architecture: str) -> Path:
    """Return the core without Python. Its build folder is kept, so that the next build is incremental."""
    folder = build_target("hami_core", f"compiling the core for {architecture}", architecture)
    return folder / "hami-core" / "libhami_core.a"


def finished(interpreter: Interpreter, architecture: str) -> Path:
    """Return the folder of the finished wheel for this interpreter, whether or not it exists."""
    version = ".".join(map(str, interpreter.version))
    return WHEELS / f"hami_core-{key()}" / f"{interpreter.tag}-{version}-{architecture}"


def built(interpreter: Interpreter, architecture: str = zig.HOST) -> Path:
    """Return the finished wheel."""
    return next(finished(interpreter, architecture).glob("*.whl"))


def build(interpreter: Interpreter, architecture: str, core: Path) -> Path:
    """Build the manylinux wheel for `interpreter` on `architecture`; raises NoHeaders if that is not possible."""
    folder = finished(interpreter, architecture)
    if not folder.is_dir():
        work = CACHE / "build" / f"{interpreter.tag}-{architecture}-work"
        shutil.rmtree(work, ignore_errors=True)
        project = read(ROOT)
        other = interpreter != running()
        lent = build_requirements.linked(project, interpreter, work / "backends") if other else None
        wheel = wheels.compile_wheel(
            ROOT,
            work / "raw",
            f"wheel-{interpreter.tag}-{architecture}",
            platforms.parse(f"manylinux2014_{architecture}"),
            python=interpreter,
            backends=lent,
            build_folder=CACHE / "build" / f"{interpreter.tag}-{architecture}",
            define={"HAMI_CORE_LIBRARY": core, **wheels.cmake_packages(project, ROOT / "hami-core" / "cmake")},
        )
        inside = [sbom.pybind11(pinned("pybind11")), sbom.cxx_library(zig.cxx_library_version())]
        wheel_file.finish(wheel, work / "finished", platform_tags(architecture), inside)
        keep(work, folder)
    return built(interpreter, architecture)


def keep(work: Path, folder: Path) -> None:
    """Move work/finished to `folder` in one step, so that an interrupted build leaves no incomplete files there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    os.replace(work / "finished", folder)
    shutil.rmtree(work)
