"""The compiler of the published wheels: clang from the ziglang wheel, for one version of glibc."""

from __future__ import annotations

import platform
import re
import sys
from functools import lru_cache
from pathlib import Path

from hami_build import cache
from hami_build.steps import Failure, environment, exclusive, run, step

GLIBC_VERSION = (2, 17)
GLIBC = ".".join(map(str, GLIBC_VERSION))
ARCHITECTURES = ("x86_64", "aarch64")
HOST = platform.machine()
TOOLCHAIN = Path(__file__).with_name("zig.cmake")


def target(architecture: str = HOST, glibc: str = GLIBC) -> str:
    """Return zig's name of a target."""
    return f"{architecture}-linux-gnu.{glibc}"


TARGET = target()


def program() -> Path:
    import ziglang  # installed in the tools environment

    return Path(ziglang.__path__[0]) / "zig"


def cache_folder(aim: str) -> Path:
    """Return zig's cache for one target, which keeps its stub libraries separate from those of other targets."""
    return cache.folder() / "zig" / aim


def cache_for(aim: str) -> dict[str, str]:
    """Return the environment variables that set this cache."""
    folder = str(cache_folder(aim))
    return {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}


def build_environment(aim: str = TARGET, **extra: str) -> dict[str, str]:
    """Return the environment for commands that compile: cmake and ninja of the tools, zig with a cache in ours."""
    tools = Path(sys.executable).parent
    inherited = environment()
    for flags in ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CMAKE_ARGS", "CMAKE_GENERATOR"):
        inherited.pop(flags, None)  # builds depend only on the checkout
    return {
        **inherited,
        "PATH": f"{tools}:{inherited.get('PATH', '/usr/bin:/bin')}",
        "HAMI_ZIG": str(program()),
        **cache_for(aim),
        **extra,
    }


@lru_cache(None)
def cxx_library_version() -> str:
    """Return the version of the C++ library that zig links statically, which is that of its LLVM."""
    text = run([program(), "c++", "--version"], log="zig-version", env=build_environment())
    found = re.search(r"clang version (\d+(?:\.\d+)*)", text)
    if not found:
        raise Failure(f"zig c++ --version does not name a version of clang: {text}")
    return found.group(1)


def is_warm(aim: str) -> bool:
    """Return whether zig's libraries for that target are built."""
    return (cache_folder(aim) / "warm").exists()


def warm_up(aim: str = TARGET) -> None:
    """Let zig build its C++ library once, as a separate step with its own progress line."""
    with exclusive(f"zig-{aim}"):
        if not is_warm(aim):
            _build_library(aim)


def _build_library(aim: str) -> None:
    folder = cache_folder(aim)
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "warm.cpp"
    source.write_text("#include <iostream>\nint main() { std::cout << 1; }\n")
    with step(f"zig builds its C++ library for {aim} (once, one to four minutes)"):
        # The flags of the toolchain file; with other flags zig would build another library.
        command = [program(), "c++", "-target", aim, "-O2", "-fPIC", "-shared", "-s", source]
        run([*command, "-o", folder / "warm.so"], log=f"zig-warm-up-{aim}", env=build_environment(aim))
    (folder / "warm").touch()


def stub_libraries(aim: str) -> list[Path]:
    """Return zig's stub libraries for the target's glibc, which define every symbol and version of it."""
    warm_up(aim)
    return sorted(next(cache_folder(aim).rglob("libc.so.6")).parent.glob("lib*.so.*"))
