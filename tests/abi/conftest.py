"""Compiles native plugins with every available toolchain; all of them run in this process together with the core."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import hami
import pytest

HERE = Path(__file__).parent
GOLDEN = HERE / "golden" / "v1_0"
# The headers of the installed package, or of the source tree if the package is not installed.
SOURCE = HERE.parents[1] / "hami-core"
INSTALLED = Path(hami.native.get_include()).is_dir()
INCLUDE = Path(hami.native.get_include()) if INSTALLED else SOURCE / "include"
CMAKE = Path(hami.native.get_include()).with_name("cmake") if INSTALLED else SOURCE / "cmake"

WARNINGS = ["-Wall", "-Wextra", "-Werror"]
SHARED = ["-O2", "-fPIC", "-shared", "-s", "-fvisibility=hidden", "-Wl,-z,defs"]
# Flags in the golden header, and their names in the current header. The values are the same.
RENAMED = {
    "HAMI_OWN_THREAD": "HAMI_THREAD_DEDICATED",
    "HAMI_ANY_THREAD": "HAMI_THREAD_SERIALIZED",
    "HAMI_CONCURRENT": "HAMI_THREAD_CONCURRENT",
    "HAMI_QUICK": "HAMI_NON_BLOCKING",
    "HAMI_NOT_RETRY_SAFE": "HAMI_NOT_IDEMPOTENT",
}
LANGUAGES = {".c": ["-x", "c", "-std=c99"], ".cpp": ["-x", "c++", "-std=c++17", "-Wshadow"]}


class Toolchain:
    """A compiler with its C++ library."""

    def __init__(self, name: str, command: list[str], missing: str) -> None:
        self.name = name
        self.command = command
        self.missing = missing  # why it cannot be used; "" if it is available

    @property
    def prefix(self) -> str:
        """The prefix of backend names, so that plugins of all toolchains can be registered side by side."""
        return self.name.capitalize()

    def run(
        self, source: Path, arguments: list[str], include: Path = INCLUDE, language: list[str] | None = None
    ) -> None:
        """Compile with warnings as errors; `language` overrides the language of the suffix."""
        if self.missing:
            pytest.skip(self.missing)
        command = [
            *self.command,
            *(language or LANGUAGES[source.suffix]),
            *WARNINGS,
            f"-I{include}",
            str(source),
            *arguments,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"

    def library(self, source: Path, output: Path, *defines: str, include: Path = INCLUDE) -> Path:
        exports = f"-Wl,--version-script={CMAKE / 'plugin-exports.map'}"
        self.run(source, [f"-DPREFIX={self.prefix}", *defines, *SHARED, exports, "-o", str(output)], include)
        return output


def toolchains() -> list[Toolchain]:
    gcc = "" if shutil.which("g++") else "g++ is not installed (Debian, Ubuntu: apt install g++)"
    zig = os.environ.get("HAMI_ZIG", "")
    target = f"{platform.machine()}-linux-gnu.2.17"
    return [
        Toolchain("gcc", ["g++"], gcc),
        Toolchain("zig", [zig, "c++", "-target", target], "" if zig else "HAMI_ZIG does not name the wheels' zig"),
    ]


TOOLCHAINS = toolchains()


@pytest.fixture(params=TOOLCHAINS, ids=lambda toolchain: toolchain.name)
def toolchain(request: pytest.FixtureRequest) -> Toolchain:
    return request.param


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that compiles a source once for each toolchain and set of macros."""
    made: dict[tuple[str, ...], Path] = {}

    def build(toolchain: Toolchain, source: Path, *defines: str, include: Path = INCLUDE) -> Path:
        key = (toolchain.name, str(source), str(include), *defines)
        if key not in made:
            output = tmp_path_factory.mktemp(source.stem) / f"{source.stem}_{toolchain.name}.so"
            made[key] = toolchain.library(source, output, *defines, include=include)
        return made[key]

    return build


def golden_headers() -> list[tuple[Path, Path]]:
    """Return the sources of each golden version with its headers, and the newest sources with the current headers."""
    versions = sorted((HERE / "golden").glob("v*"), key=lambda folder: [int(n) for n in folder.name[1:].split("_")])
    return [*((folder, folder / "include") for folder in versions), (versions[-1], INCLUDE)]


def kept_wheels() -> list[Path]:
    """Return the wheels in the museum for this machine, which were built when their ABI was current."""
    return sorted((HERE / "museum").glob(f"*_{platform.machine()}.whl"))


def name_of(golden: Path | tuple[Path, Path]) -> str:
    """Return the name of a parameter of the fixture `golden`."""
    if isinstance(golden, Path):
        return f"kept-{golden.name.split('-')[1]}"
    return "current" if golden[1] == INCLUDE else golden[0].name


@pytest.fixture(
    params=[*golden_headers(), *kept_wheels()],
    ids=lambda it: (
        f"kept-{it.name.split('-')[1]}" if isinstance(it, Path) else "current" if it[1] == INCLUDE else it[0].name
    ),
)
def golden(
    request: pytest.FixtureRequest, build: Callable[..., Path], unpacked: Callable[[Path], Path]
) -> Callable[..., str]:
    """Return a function that registers a golden plugin and returns the prefix of its backends."""
    if isinstance(request.param, Path):
        folder = unpacked(request.param)

        def kept(toolchain: Toolchain, name: str = "full.cpp") -> str:
            hami.native.register_plugin(folder / "hami_golden" / f"{name.partition('.')[0]}.so")
            return f"Golden{request.param.name.split('-')[1].replace('.', '')}"

        return kept
    sources, include = request.param

    def golden(toolchain: Toolchain, name: str = "full.cpp") -> str:
        defines = [f"-D{old}={new}" for old, new in RENAMED.items()] if include == INCLUDE else []
        hami.native.register_plugin(build(toolchain, sources / name, *defines, include=include))
        return toolchain.prefix

    return golden


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Return a function that unpacks a wheel once, as its libraries are loaded once, and returns the folder."""
    made: dict[Path, Path] = {}

    def unpacked(wheel: Path) -> Path:
        if wheel not in made:
            made[wheel] = tmp_path_factory.mktemp("museum")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(made[wheel])
        return made[wheel]

    return unpacked


@pytest.fixture
def hostile(build: Callable[..., Path], toolchain: Toolchain) -> str:
    hami.native.register_plugin(build(toolchain, HERE / "plugins" / "hostile.cpp"))
    return toolchain.prefix
