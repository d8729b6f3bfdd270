"""Environments as a user would have them: our wheels from dist/, everything else from the package index."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

from hami_build import zig
from hami_build.interpreters import Interpreter
from hami_build.steps import Failure, exclusive, run, step

from . import dist, environments
from .paths import CACHE, DIST


def usable(interpreter: Interpreter) -> list[Path]:
    """Return the wheels in dist/ that this interpreter can install on this machine."""
    tags = ("py3", interpreter.tag.rstrip("t"))
    abis = ("none", interpreter.tag)
    names = ((wheel, wheel.stem.split("-")) for wheel in sorted(DIST.glob("*.whl")))
    here = ("any", zig.HOST)
    return [wheel for wheel, parts in names if parts[-3] in tags and parts[-2] in abis and parts[-1].endswith(here)]


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
    wheels = usable(interpreter)
    files = [Path(other).read_text("utf-8") for other in others if other.endswith(".txt")]
    outer = "\n".join([str(interpreter), *wanted, *others, *files, *map(requirements_of, wheels)])
    key = hashlib.sha256(outer.encode()).hexdigest()
    stamp = "\n".join([key, *(hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels)])
    with exclusive(f"env-{folder.name}"):
        found = environments.stamp_of(folder)
        if found and found.split("\n")[0] == key and found != stamp:
            site = next(folder.glob("lib/python*/site-packages"))
            ours = [wheel for wheel in wheels if list(site.glob(f"{wheel.name.partition('-')[0]}-*.dist-info"))]
            with step(f"installing our new wheels into the environment {folder.name}"):
                environments.install(folder, stamp, "--force-reinstall", "--no-deps", *ours)
        elif found != stamp:
            with step(f"installing {' '.join(wanted)} into a clean environment"):
                environments.fresh_venv(folder, str(interpreter.executable))
                pins = folder / "constraints.txt"  # our wheels, even if an index has a newer version
                named = ((wheel.name.partition("-")[0].replace("_", "-"), wheel.as_uri()) for wheel in wheels)
                pins.write_text("".join(f"{name} @ {address}\n" for name, address in named))
                environments.install(folder, stamp, "--constraint", pins, *wanted, *others)
    return folder / "bin" / "python"


# ---- what install tests need, so that they need no network ----


def third_party(wheels: Sequence[Path]) -> list[str]:
    """Return the requirements of `wheels` that are not packages of ours, without extras."""
    ours = {"hami-core", *(plugin.name for plugin in dist.folders())}
    lines = [line for wheel in wheels for line in requirements_of(wheel).splitlines() if "extra ==" not in line]
    asked = {line.removeprefix("Requires-Dist:").strip() for line in lines if line.startswith("Requires-Dist:")}
    return sorted(text for text in asked if not dist.names_of([text]) & ours)


def download(interpreter: Interpreter, wanted: Sequence[str]) -> list[Path]:
    """Return wheels of `wanted` and their requirements for `interpreter`, downloaded now or by an earlier run."""
    text = "".join(f"{requirement}\n" for requirement in wanted)
    folder = CACHE / "wheelhouse" / f"{interpreter.tag}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    with exclusive(f"wheelhouse-{folder.name}"):
        if not (folder / environments.STAMP).is_file():
            pip = [environments.ensure("installers"), "-m", "pip", "--python", interpreter.executable]
            shutil.rmtree(folder, ignore_errors=True)
            with step(f"fetching {', '.join(wanted)} for {interpreter.tag}"):
                try:
                    run([*pip, "wheel", "--wheel-dir", folder, *wanted], log=f"wheelhouse-{interpreter.tag}")
                except Failure as failure:
                    raise Failure(f"{failure}\n{environments.INDEX_HINT}") from failure
            (folder / environments.STAMP).write_text(text)
    return sorted(folder.glob("*.whl"))
