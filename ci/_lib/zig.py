"""The compiler of record: clang out of the ziglang wheel, aimed at one glibc."""

from __future__ import annotations

import platform
import re
import sys
from functools import cache
from pathlib import Path

from .paths import CACHE, ROOT
from .steps import Failure, environment, exclusive, run, step

GLIBC_VERSION = (2, 17)
GLIBC = ".".join(map(str, GLIBC_VERSION))
ARCHITECTURES = ("x86_64", "aarch64")
HOST = platform.machine()
TOOLCHAIN = ROOT / "ci" / "toolchains" / "zig.cmake"


def target(architecture: str = HOST, glibc: str = GLIBC) -> str:
    """What zig calls that architecture with that glibc."""
    return f"{architecture}-linux-gnu.{glibc}"


TARGET = target()


def program() -> Path:
    import ziglang  # of the tools' environment

    return Path(ziglang.__file__).with_name("zig")


def cache_folder(aim: str = TARGET) -> Path:
    """zig's cache for one target, so that the stand-ins for its libraries lie apart from those of others."""
    return CACHE / "zig" / aim


def cache_for(aim: str) -> dict[str, str]:
    """The same, as zig is told it."""
    folder = str(cache_folder(aim))
    return {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}


def build_environment(aim: str = TARGET, **extra: str) -> dict[str, str]:
    """For commands that compile: cmake and ninja of the tools' environment, zig with its cache in ours."""
    tools = Path(sys.executable).parent
    inherited = environment()
    for flags in ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CMAKE_ARGS", "CMAKE_GENERATOR"):
        inherited.pop(flags, None)  # what is built depends on the checkout alone
    return {
        **inherited,
        "PATH": f"{tools}:{inherited.get('PATH', '/usr/bin:/bin')}",
        "HAMI_ZIG": str(program()),
        **cache_for(aim),
        **extra,
    }


@cache
def cxx_library_version() -> str:
    """The version of the C++ library that it links statically: that of the LLVM it is made of."""
    text = run([program(), "c++", "--version"], log="zig-version", env=build_environment())
    found = re.search(r"clang version (\d+(?:\.\d+)*)", text)
    if not found:
        raise Failure(f"zig c++ --version says no version of clang: {text}")
    return found.group(1)


def is_warm(aim: str = TARGET) -> bool:
    """Whether zig's libraries for that target are built."""
    return (cache_folder(aim) / "warm").exists()


def warm_up(aim: str = TARGET) -> None:
    """Let zig build its C++ library once, by itself, so that the wait has a name."""
    with exclusive(f"zig-{aim}"):
        if not is_warm(aim):
            _build_library(aim)


def _build_library(aim: str) -> None:
    folder = cache_folder(aim)
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "warm.cpp"
    source.write_text("#include <iostream>\nint main() { std::cout << 1; }\n")
    with step(f"zig builds its C++ library for {aim} (once, one to four minutes)"):
        # The flags are those of the toolchain file: others would build another one.
        command = [program(), "c++", "-target", aim, "-O2", "-fPIC", "-shared", "-s", source]
        run([*command, "-o", folder / "warm.so"], log=f"zig-warm-up-{aim}", env=build_environment(aim))
    (folder / "warm").touch()


def stub_libraries(aim: str = TARGET) -> list[Path]:
    """Stand-ins for the libraries of the target's glibc, with every symbol and version that it has: zig links these."""
    warm_up(aim)
    return sorted(next(cache_folder(aim).rglob("libc.so.6")).parent.glob("lib*.so.*"))
