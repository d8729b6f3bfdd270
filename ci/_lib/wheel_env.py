"""Environments as a user would have them: our wheels from dist/, everything else from the package index."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

from hami_build import zig
from hami_build.interpreters import Interpreter
from hami_build.steps import exclusive, step

from . import environments, preflight
from .paths import CACHE, DIST


def usable(interpreter: Interpreter) -> list[Path]:
    """Return the wheels in dist/ that this interpreter can install on this machine."""
    tags = ("py3", interpreter.tag.rstrip("t"))
    abis = ("none", interpreter.tag)
    names = ((wheel, wheel.stem.split("-")) for wheel in sorted(DIST.glob("*.whl")))
    here = ("any", zig.HOST)
    return [wheel for wheel, parts in names if parts[-3] in tags and parts[-2] in abis and parts[-1].endswith(here)]


def pins(wheels: Sequence[Path]) -> dict[str, str]:
    """Return the version of each distribution: pip must use our wheels even if an index has a newer version."""
    parts = (wheel.name.split("-") for wheel in wheels)
    return {name.replace("_", "-"): version for name, version, *_ in parts}


def requirements_of(wheel: Path) -> str:
    """Return the lines of METADATA with requirements and version."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    return "\n".join(line for line in lines if line.startswith(("Requires-Dist:", "Requires-Python:", "Version:")))


def ensure(name: str, interpreter: Interpreter, wanted: Sequence[str], others: Sequence[str] = ()) -> Path:
    """Return the interpreter of an environment with `wanted` of our distributions (extras allowed) and `others`.

    Changed wheels replace the installed ones; changed requirements or versions make a new environment.
    """
    folder = CACHE / "envs" / f"{name}-{interpreter.tag}"
    with exclusive(f"env-{folder.name}"):
        return _ensure(folder, interpreter, wanted, others)


def _ensure(folder: Path, interpreter: Interpreter, wanted: Sequence[str], others: Sequence[str]) -> Path:
    wheels = usable(interpreter)
    files = [Path(other).read_text("utf-8") for other in others if other.endswith(".txt")]
    outer = "\n".join([str(interpreter), *wanted, *others, *files, *map(requirements_of, wheels)])
    inner = "".join(hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels)
    key = hashlib.sha256(outer.encode()).hexdigest()
    python = folder / "bin" / "python"
    if environments.stamped(folder, f"{key}\n{inner}"):
        return python
    if environments.stamp_of(folder).startswith(key):
        site = next(folder.glob("lib/python*/site-packages"))
        ours = [wheel for wheel in wheels if list(site.glob(f"{wheel.name.partition('-')[0]}-*.dist-info"))]
        with step(f"installing our new wheels into the environment {folder.name}"):
            environments.install(python, f"install-{folder.name}", "--force-reinstall", "--no-deps", *ours)
    else:
        preflight.require_index("pluggy")
        with step(f"installing {' '.join(wanted)} into a clean environment"):
            environments.fresh_venv(folder, str(interpreter.executable))
            constraints = folder / "constraints.txt"
            constraints.write_text("".join(f"{name}=={version}\n" for name, version in pins(wheels).items()))
            environments.install(
                python, f"install-{folder.name}", "--find-links", DIST, "--constraint", constraints, *wanted, *others
            )
    (folder / environments.STAMP).write_text(f"{key}\n{inner}")
    return python
