"""The compiler of record: clang out of the ziglang wheel, aimed at one glibc."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from .paths import CACHE, ROOT
from .steps import environment, run, step

GLIBC_VERSION = (2, 17)
GLIBC = ".".join(map(str, GLIBC_VERSION))
TARGET = f"{platform.machine()}-linux-gnu.{GLIBC}"
ZIG_CACHE = CACHE / "zig" / TARGET
TOOLCHAIN = ROOT / "ci" / "toolchains" / "zig.cmake"


def program() -> Path:
    import ziglang  # of the tools' environment

    return Path(ziglang.__file__).with_name("zig")


def cache_for(target: str) -> dict[str, str]:
    """zig's cache for one target, so that the stand-ins for its libraries lie apart from those of others."""
    folder = str(CACHE / "zig" / target)
    return {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}


def build_environment(**extra: str) -> dict[str, str]:
    """For commands that compile: cmake and ninja of the tools' environment, zig with its cache in ours."""
    tools = Path(sys.executable).parent
    inherited = environment()
    for flags in ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CMAKE_ARGS", "CMAKE_GENERATOR"):
        inherited.pop(flags, None)  # what is built depends on the checkout alone
    return {
        **inherited,
        "PATH": f"{tools}:{inherited.get('PATH', '/usr/bin:/bin')}",
        "HAMI_ZIG": str(program()),
        **cache_for(TARGET),
        **extra,
    }


def warm_up() -> None:
    """Let zig build its C++ library once, by itself, so that the wait has a name."""
    if (ZIG_CACHE / "warm").exists():
        return
    ZIG_CACHE.mkdir(parents=True, exist_ok=True)
    source = ZIG_CACHE / "warm.cpp"
    source.write_text("#include <iostream>\nint main() { std::cout << 1; }\n")
    with step("zig builds its C++ library (once, one to four minutes)"):
        # The flags are those of the toolchain file: others would build another one.
        command = [program(), "c++", "-target", TARGET, "-O2", "-fPIC", "-shared", "-s", source]
        run([*command, "-o", ZIG_CACHE / "warm.so"], log="zig-warm-up", env=build_environment())
    (ZIG_CACHE / "warm").touch()


def stub_libraries() -> list[Path]:
    """Stand-ins for the libraries of the target's glibc, with every symbol and version that it has: zig links these."""
    warm_up()
    return sorted(next(ZIG_CACHE.rglob("libc.so.6")).parent.glob("lib*.so.*"))
