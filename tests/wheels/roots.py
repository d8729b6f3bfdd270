"""Other systems for tests: an older Debian, and an emulated Python of another architecture.

Each is made once and kept in the cache. If that is not possible, Missing says what to install.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from _lib.other_systems import PYTHON
from _lib.paths import CACHE
from hami_build import apt
from hami_build.steps import Failure, environment, exclusive, run, step

ROOTS = CACHE / "roots"
OLD_SUITE, SUITE = "bullseye", "bookworm"  # the older has glibc 2.31 with CPython 3.9: the oldest on the mirrors
COMPILERS = "gcc,libc6-dev,libffi-dev,make,zlib1g-dev"
SOURCE = f"python{PYTHON}"  # of the newer Debian, built on the older one from its source package
PYTHON_PREFIX = "/opt/python"
MMDEBSTRAP = ["mmdebstrap", f'--aptopt=Acquire::Retries "{apt.RETRIES}"']
# No manuals, no disk synchronisation: a system that was made incompletely is deleted.
LEAN = [f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in ("doc", "locale")] + ["--dpkgopt=force-unsafe-io"]


class Missing(Failure):
    """A system cannot be made here; the text says what to install."""


def require(*programs: str) -> None:
    packages = {"bwrap": "bubblewrap", "qemu-aarch64-static": "qemu-user-static"}
    absent = [packages.get(program, program) for program in programs if not shutil.which(program)]
    if absent:
        raise Missing(f"needs {', '.join(absent)} (Debian, Ubuntu: apt install {' '.join(absent)})")


def _made(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder that `make` fills; an incomplete one is deleted."""
    folder, work = ROOTS / name, ROOTS / f"{name}.work"
    with exclusive(f"root-{name}"):
        if not folder.is_dir():
            ROOTS.mkdir(parents=True, exist_ok=True)
            _remove(work)
            try:
                make(work)
            except Failure as failure:
                _remove(work)
                raise Missing(f"{name} could not be made: {failure}") from failure
            os.replace(work, folder)
    return folder


def _remove(folder: Path) -> None:
    if folder.exists():
        run(["rm", "-rf", folder], log="roots-remove")


# ---- without containers: a folder that bubblewrap or an emulator enters ----


def entering(root: Path, *binds: tuple[Path, str], writable: bool = False) -> list[str | Path]:
    """Return the start of a command that runs inside `root`; it may write to the (outer, inner) folders `binds`."""
    mode = "--bind" if writable else "--ro-bind"
    shown = [word for outer, inner in binds for word in ("--bind", outer, inner)]
    empty = ("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp")
    return ["bwrap", mode, root, "/", *empty, *shown, "--die-with-parent"]


def old_debian() -> Path:
    """Return the root of an older Debian with its own Python and a newer one in /opt/python."""
    require("mmdebstrap", "bwrap")

    def make(root: Path) -> None:
        packages = f"python3,python3-pip,ca-certificates,{COMPILERS}"
        command = [*MMDEBSTRAP, "--variant=minbase", *LEAN, f"--include={packages}", OLD_SUITE, root, apt.mirror()]
        with step(f"making a {OLD_SUITE} (once, one to three minutes)"):
            run(command, log=f"root-{OLD_SUITE}", env=environment())
        with step(f"building {SOURCE} on {OLD_SUITE} (once, one to three minutes)"):
            _build_python(root)

    return _made(OLD_SUITE, make)


def _build_python(root: Path) -> None:
    work = ROOTS / "source"
    fetch = apt.private(work, f"deb-src {apt.mirror()} {SUITE} main")
    run([*fetch, "update"], log="source-update")
    run([*fetch, "source", "--download-only", SOURCE], log="source-download", cwd=work)
    source = work / "source"
    source.mkdir()
    run(["tar", "-C", source, "--strip-components=1", "-xf", *work.glob("*.orig.tar.*")], log="source-unpack")
    inside = [*entering(root, (source, "/mnt"), writable=True), "--chdir", "/mnt"]
    # No debugger runs there.
    flags = ["CFLAGS=-O1", "OPT=-DNDEBUG -fwrapv -Wall"]
    configure = ["./configure", f"--prefix={PYTHON_PREFIX}", "--disable-test-modules", *flags]
    clean = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LC_ALL": "C.UTF-8"}
    run([*inside, *configure], log="python-configure", env=clean)
    run([*inside, "make", f"-j{os.cpu_count()}", "install"], log="python-build", env=clean)
    _remove(work)


def foreign_python() -> list[str | Path]:
    """Return the start of a command that runs Debian's Python for aarch64."""
    require("mmdebstrap", "bwrap", "qemu-aarch64-static")

    def make(root: Path) -> None:
        packages = f"python{PYTHON}-minimal,libpython{PYTHON}-stdlib"
        command = [*MMDEBSTRAP, "--variant=extract", "--architectures=arm64", f"--include={packages}"]
        with step("unpacking Python for aarch64 (once)"):
            run([*command, SUITE, root, apt.mirror()], log="root-aarch64", env=environment())

    root = _made("aarch64", make)
    return ["qemu-aarch64-static", "-L", root, root / "usr" / "bin" / f"python{PYTHON}"]
