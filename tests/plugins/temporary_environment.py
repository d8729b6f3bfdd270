"""Temporary virtual environments, into which a test installs with pip."""

from __future__ import annotations

import importlib.metadata as metadata
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from packaging.requirements import Requirement

# Files that pip writes during installation; they are not part of a wheel.
OF_THE_INSTALLER = {"INSTALLER", "REQUESTED", "direct_url.json"}


class TemporaryEnvironment:
    """An empty virtual environment, and a folder of wheels that pip prefers over any index."""

    def __init__(self, folder: Path, wheels: Path, cwd: Path) -> None:
        self.python = folder / "bin" / "python"
        self._wheels = wheels
        self._cwd = cwd
        run([sys.executable, "-m", "venv", str(folder)], cwd, dict(os.environ))

    def pip(self, *arguments: str) -> None:
        command = [self.python, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
        environment = self._environment()
        if "--no-build-isolation" in arguments:
            del environment["PIP_BUILD_CONSTRAINT"]  # pip 26.2 rejects an unused one
        done = run(list(map(str, command)), self._cwd, environment)
        assert done.returncode == 0, done.stdout + done.stderr

    def hami(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.python.with_name("hami")), *arguments]
        return run(command, self._cwd, {**self._environment(), **environment})

    def _environment(self) -> dict[str, str]:
        """Inherit no Python or hami settings, and make pip build against the installed hami-core."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HAMI_"))}
        constraints = self._wheels / "constraints.txt"
        constraints.write_text(f"hami-core=={metadata.version('hami-core')}\n")
        return {
            **kept,
            "PATH": f"{self.python.parent}{os.pathsep}{kept.get('PATH', '')}",
            "PIP_FIND_LINKS": str(self._wheels),
            "PIP_CONSTRAINT": str(constraints),
            "PIP_BUILD_CONSTRAINT": str(constraints),
        }


def run(command: list[str], cwd: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def repack(name: str, folder: Path) -> None:
    """Write the wheels of an installed distribution and of its requirements, from the installed files."""
    found = metadata.distribution(name)
    tag = next(line for line in (found.read_text("WHEEL") or "").splitlines() if line.startswith("Tag:"))
    stem = f"{found.metadata['Name'].replace('-', '_')}-{found.version}"
    wheel = folder / f"{stem}-{tag.partition(':')[2].strip()}.whl"
    if wheel.exists():
        return
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in found.files or ():
            if file.parts[0] != ".." and "__pycache__" not in file.parts and file.name not in OF_THE_INSTALLER:
                archive.write(file.locate(), str(file))
    for line in found.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            repack(requirement.name, folder)
