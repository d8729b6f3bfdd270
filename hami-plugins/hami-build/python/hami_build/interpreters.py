"""Finds the CPythons of this machine that wheels can be built for, one per ABI; the running one takes precedence."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from hami_build.errors import Failure

OLDEST = (3, 10)
PLACES = (
    "{PYENV_ROOT}/versions/*/bin/python3",
    "{HOME}/.pyenv/versions/*/bin/python3",
    "{HOME}/.local/share/uv/python/*/bin/python3",
    "/opt/python/*/bin/python3",
    "/usr/local/bin/python3*",
    "/usr/bin/python3*",
)
PROBE = """
import json, os, platform, struct, sys, sysconfig
print(json.dumps({
    "executable": os.path.realpath(sys.executable),
    "implementation": platform.python_implementation(),
    "version": list(sys.version_info[:3]),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "bits": struct.calcsize("P") * 8,
    "include": sysconfig.get_path("platinclude"),
    "final": sys.version_info.releaselevel == "final",
}))
"""


@dataclass(frozen=True)
class Interpreter:
    executable: Path
    version: tuple[int, int, int]
    free_threaded: bool
    include: Path

    @property
    def tag(self) -> str:
        """Its ABI as in the names of wheels: cp312, cp313t."""
        return f"cp{self.version[0]}{self.version[1]}{'t' if self.free_threaded else ''}"

    @property
    def has_headers(self) -> bool:
        return (self.include / "Python.h").is_file()

    def soabi(self, architecture: str) -> str:
        """Return the part of an extension module's name before .so."""
        return f"cpython-{self.tag.removeprefix('cp')}-{architecture}-linux-gnu"

    def __str__(self) -> str:
        return f"{self.tag} ({'.'.join(map(str, self.version))}, {self.executable})"


def probe(executable: Path) -> Interpreter | str:
    """Return the interpreter `executable`, or the reason why nothing is built for it."""
    try:
        result = subprocess.run(
            [executable, "-IS", "-c", PROBE], capture_output=True, text=True, timeout=20, check=True
        )
        found = json.loads(result.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return f"{executable}: does not run"
    version = ".".join(map(str, found["version"]))
    if found["implementation"] != "CPython":
        return f"{executable}: {found['implementation']} {version}, and only CPython is supported"
    if tuple(found["version"][:2]) < OLDEST:
        return f"{executable}: Python {version} is older than {OLDEST[0]}.{OLDEST[1]}"
    if found["bits"] != 64:
        return f"{executable}: {found['bits']} bits, and only 64 are supported"
    if not found["final"]:
        return f"{executable}: {version} is a pre-release, its ABI may still change"
    return Interpreter(
        Path(found["executable"]), tuple(found["version"]), found["free_threaded"], Path(found["include"])
    )


def candidates() -> list[Path]:
    """Return the interpreters in the usual places and on PATH, each once."""
    variables = {"HOME": os.path.expanduser("~"), "PYENV_ROOT": os.environ.get("PYENV_ROOT", "/nonexistent")}
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder and "shims" not in folder]
    patterns = [place.format(**variables) for place in PLACES] + [f"{folder}/python3*" for folder in folders]
    found = [path for pattern in patterns for path in sorted(glob.glob(pattern))]
    programs = (
        Path(path) for path in found if Path(path).name.removeprefix("python").replace(".", "").rstrip("t").isdigit()
    )
    return list({path.resolve(): path for path in reversed(list(programs))}.values())[::-1]


def running() -> Interpreter | str:
    """Return the interpreter that the current environment was created with."""
    return probe(Path(sys._base_executable))  # type: ignore[attr-defined]


def find() -> tuple[list[Interpreter], list[str]]:
    """Return one interpreter per ABI, oldest first, and a line with the reason for each that is left out."""
    chosen: dict[str, Interpreter] = {}
    skipped = []
    for found in [running(), *map(probe, candidates())]:
        if isinstance(found, str):
            skipped.append(found)
        elif found.tag not in chosen or (found.has_headers and not chosen[found.tag].has_headers):
            chosen[found.tag] = found
    return sorted(chosen.values(), key=lambda i: (i.version, i.free_threaded)), list(dict.fromkeys(skipped))


def select(asked: list[str]) -> tuple[list[Interpreter], list[str]]:
    """Return the interpreters that `asked` names (`current`, 3.12, cp313t, a path; none: all), and those left out."""
    if not asked:
        return find()
    chosen, skipped = [], []
    for which in asked:
        if which == "current":
            matches = [running()]
        elif "/" in which:
            matches = [probe(Path(which))]
        else:
            tag = which if which.startswith("cp") else f"cp{which.replace('.', '')}"
            found = find()[0]
            here = ", ".join(i.tag for i in found) or "none"
            matches = [i for i in found if i.tag == tag] or [f"{which}: no such CPython found; found: {here}"]
        chosen += [match for match in matches if isinstance(match, Interpreter)]
        skipped += [match for match in matches if isinstance(match, str)]
    return chosen, skipped


def required(asked: list[str]) -> list[Interpreter]:
    """Return the interpreters that `asked` names, as `select` does; raises Failure if one cannot be used."""
    chosen, skipped = select(asked)
    if (asked and skipped) or not chosen:
        raise Failure("\n".join([f"no CPython to build for ({', '.join(asked) or 'any'}):", *skipped]))
    return chosen
