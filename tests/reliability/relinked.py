"""The C++ tests of the development build with some sources of the core compiled in another way.

The new objects come first when the program is linked, so those in the archive of the core are left out. The files of
the development build stay as they are.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("HAMI_CACHE", ROOT / ".cache")) / "build" / "in-place"
PROGRAM = Path("tests") / "cpp" / "hami_tests"
ROOMS = ("lang", "schedule")  # the parser; queue and batch policy
LINKERS = ("mold", "lld", "gold")  # quicker than the one of the system, if they are installed


def sources(room: str) -> list[Path]:
    return sorted((ROOT / "hami-core" / "src" / room).glob("*.cpp"))


class Tests:
    """How the C++ tests were compiled and linked."""

    def __init__(self) -> None:
        entries = json.loads((BUILD / "compile_commands.json").read_text("utf-8"))
        self._flags = {Path(entry["file"]): shlex.split(entry["command"])[1:] for entry in entries}
        ninja = ["ninja", "-C", str(BUILD), "-t", "commands", str(PROGRAM)]
        command = subprocess.run(ninja, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
        linker = [f"-fuse-ld={name}" for name in LINKERS if shutil.which(f"ld.{name}")]
        self._link = [*linker[:1], *shlex.split(command.removeprefix(": && ").removesuffix(" && :"))[1:]]

    def compile(self, file: Path, text: Path, made: Path, compiler: str, *options: str) -> bool:
        """Compile `text` as that source file of the core; return whether it compiles."""
        flags = [flag for flag in self._flags[file] if re.match("-(D|I|std|fPIC|fvisibility)", flag)]
        command = [compiler, *flags, "-O0", "-w", *options, "-o", str(made), "-c", str(text)]
        return subprocess.run(command, cwd=BUILD, capture_output=True, check=False).returncode == 0

    def link(self, objects: list[Path], name: str, compiler: str, *options: str) -> Path:
        """Return the program with these objects, beside the one of the build: tests find others there."""
        program = BUILD / PROGRAM.with_name(name)
        parts = [str(program) if part == str(PROGRAM) else part for part in self._link]
        subprocess.run([compiler, *options, *map(str, objects), *parts], cwd=BUILD, capture_output=True, check=True)
        return program


def test_files(room: str) -> str:
    """Return the option that selects the C++ tests of a room: those that include its headers."""
    uses = re.compile(rf'#include "({room}/|{"expressions" if room == "lang" else "scheduled"}\.hpp)')
    files = sorted((ROOT / "tests" / "cpp").glob("test_*.cpp"))
    return "--source-file=" + ",".join(f"*/{file.name}" for file in files if uses.search(file.read_text("utf-8")))
