"""The compiler of record: clang out of the ziglang wheel, aimed at one glibc."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

from .paths import CACHE, ROOT
from .steps import environment, run, step

GLIBC = "2.17"
TARGET = f"{platform.machine()}-linux-gnu.{GLIBC}"
TOOLCHAIN = ROOT / "ci" / "toolchains" / "zig.cmake"


def program() -> Path:
    import ziglang  # of the tools' environment

    return Path(ziglang.__file__).with_name("zig")


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
        "ZIG_GLOBAL_CACHE_DIR": str(CACHE / "zig"),
        "ZIG_LOCAL_CACHE_DIR": str(CACHE / "zig"),
        **extra,
    }


def warm_up() -> None:
    """Let zig build its C++ library once, by itself, so that the wait has a name."""
    done = CACHE / "zig" / f"warm-{TARGET}"
    if done.exists():
        return
    work = CACHE / "build" / "warm-up"
    work.mkdir(parents=True, exist_ok=True)
    source = work / "warm.cpp"
    source.write_text("#include <iostream>\nint main() { std::cout << 1; }\n")
    with step("zig builds its C++ library (once, two to four minutes)"):
        command = [program(), "c++", "-target", TARGET, "-O2", "-fPIC", "-shared", source, "-o", work / "warm.so"]
        run(command, log="zig-warm-up", env=build_environment())
    done.touch()


def stub_libraries() -> list[Path]:
    """Stand-ins for the libraries of the target's glibc, with every symbol and version that it has."""
    folder = CACHE / "stubs" / TARGET
    if not (folder / "libc.so.6").is_file():
        # zig writes them into its cache when it links; a cache of their own, so that no other target's are among them.
        work = CACHE / "stubs" / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        (work / "empty.c").write_text("int main(void) { return 0; }\n")
        env = build_environment(ZIG_GLOBAL_CACHE_DIR=str(work / "zig"), ZIG_LOCAL_CACHE_DIR=str(work / "zig"))
        with step(f"zig writes the symbol lists of glibc {GLIBC} (once)"):
            libraries = [f"-l{name}" for name in ("m", "pthread", "dl", "rt", "util")]
            command = [program(), "cc", "-target", TARGET, work / "empty.c", "-o", work / "empty", *libraries]
            run(command, log="zig-stubs", env=env)
        found = next(work.rglob("libc.so.6")).parent
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(found, folder)
        shutil.rmtree(work)
    return sorted(folder.glob("lib*.so.*"))
