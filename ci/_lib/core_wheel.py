"""hami-core: the static core once, then one manylinux wheel for each CPython, all kept until a source changes."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from . import environments, headers, zig
from .interpreters import Interpreter
from .paths import CACHE, REQUIREMENTS, ROOT, content_key
from .steps import environment, run, step

INPUTS = [
    *(ROOT / name for name in ("pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE", "hami-core")),
    ROOT / "ci" / "toolchains",
    ROOT / "ci" / "_lib" / "core_wheel.py",
    REQUIREMENTS / "tools.txt",
    REQUIREMENTS / "backend.txt",
]
WHEELS = CACHE / "wheels"
# The newest platform; auditwheel adds the tags of every older one that the binary satisfies too.
PLATFORM = f"manylinux_2_28_{platform.machine()}"
EPOCH_WITHOUT_GIT = "1577836800"

BUILD_WHEEL = "import json, sys, scikit_build_core.build as b; b.build_wheel(sys.argv[1], json.loads(sys.argv[2]))"


def source_date(paths: list[Path]) -> str:
    """The time of the last commit that touched `paths`: what a reproducible archive is dated with."""
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct", "--", *map(str, paths)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() or EPOCH_WITHOUT_GIT


@cache
def key() -> str:
    return content_key(INPUTS, zig.TARGET)


def configure_core() -> Path:
    """The build folder of the static core and its unit tests; both are compiled as released."""
    zig.warm_up()
    folder = CACHE / "build" / "core"
    command = [
        *("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja"),
        *(f"-DCMAKE_TOOLCHAIN_FILE={zig.TOOLCHAIN}", f"-DHAMI_ZIG_TARGET={zig.TARGET}", "-DCMAKE_BUILD_TYPE=Release"),
        *("-DHAMI_PYTHON=OFF", "-DHAMI_TESTS=ON", "-DHAMI_SYSTEM_DOCTEST=OFF", "-DHAMI_WERROR=ON"),
    ]
    with step("configuring the core"):
        run(command, log="core-configure", env=zig.build_environment())
    return folder


def build_target(target: str, title: str) -> Path:
    """Compile one target of the core's build folder; returns that folder."""
    folder = configure_core()
    with step(title):
        run(["cmake", "--build", folder, "--target", target], log=f"build-{target}", env=zig.build_environment())
    return folder


def static_core() -> Path:
    return build_target("hami_core", "compiling the core") / "hami-core" / "libhami_core.a"


def backend_folder() -> Path:
    """The build backend as a folder for PYTHONPATH: it is pure Python, one copy serves every interpreter."""
    folder, requirements = CACHE / "envs" / "backend", REQUIREMENTS / "backend.txt"
    stamp = content_key([requirements])
    if not environments.stamped(folder, stamp):
        shutil.rmtree(folder, ignore_errors=True)
        with step("installing the build backend"):
            environments.install(Path(sys.executable), "install-backend", "--target", folder, "-r", requirements)
        (folder / environments.STAMP).write_text(stamp)
    return folder


def finished(interpreter: Interpreter) -> Path:
    """Where the finished wheel of this interpreter lies, or will."""
    return WHEELS / f"hami_core-{key()}" / f"{interpreter.tag}-{'.'.join(map(str, interpreter.version))}"


def build(interpreter: Interpreter) -> Path:
    """The manylinux wheel for `interpreter`; raises NoHeaders if it cannot be built for."""
    folder = finished(interpreter)
    if not folder.is_dir():
        include = headers.include_folder(interpreter)
        core = static_core()
        with step(f"building hami-core for {interpreter.tag}"):
            work = CACHE / "build" / f"{interpreter.tag}-work"
            shutil.rmtree(work, ignore_errors=True)
            wheel = compile_wheel(interpreter, include, core, work / "raw")
            retag(wheel, work / "repaired", source_date(INPUTS))
            folder.parent.mkdir(parents=True, exist_ok=True)
            os.replace(work / "repaired", folder)
            shutil.rmtree(work)
    return next(folder.glob("*.whl"))


def compile_wheel(interpreter: Interpreter, include: Path, core: Path, destination: Path) -> Path:
    """Run the build backend under `interpreter`; the build folder stays, so that the next build is incremental."""
    backend = backend_folder()
    settings = {
        "build-dir": str(CACHE / "build" / interpreter.tag),
        "cmake.define.CMAKE_TOOLCHAIN_FILE": str(zig.TOOLCHAIN),
        "cmake.define.HAMI_ZIG_TARGET": zig.TARGET,
        "cmake.define.HAMI_CORE_LIBRARY": str(core),
        "cmake.define.pybind11_DIR": str(backend / "pybind11" / "share" / "cmake" / "pybind11"),
        "cmake.define.Python_INCLUDE_DIR": str(include),
    }
    env = zig.build_environment(PYTHONPATH=str(backend), SOURCE_DATE_EPOCH=source_date(INPUTS))
    destination.mkdir(parents=True)
    command = [interpreter.executable, "-S", "-c", BUILD_WHEEL, destination, json.dumps(settings)]
    run(command, log=f"wheel-{interpreter.tag}", env=env, cwd=ROOT)
    return next(destination.glob("*.whl"))


def retag(wheel: Path, destination: Path, date: str) -> None:
    """Let auditwheel prove that the wheel is manylinux, and name it so."""
    tools = Path(sys.executable).parent
    env = environment(SOURCE_DATE_EPOCH=date, PATH=f"{tools}:{os.environ.get('PATH', '')}")
    command = [tools / "auditwheel", "repair", "--plat", PLATFORM, "--wheel-dir", destination, wheel]
    run(command, log=f"repair-{wheel.stem}", env=env)
