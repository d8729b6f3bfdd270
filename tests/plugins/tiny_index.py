"""A package index of static files, and virtual environments that contain the hami of the tests."""

from __future__ import annotations

import hashlib
import importlib.metadata as metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import hami
import hami_tools
import tiny_wheels


def write_index(folder: Path, wheels: Iterable[Path]) -> str:
    """Write the pages of an index beside the wheels of several projects, and return its address."""
    pages: dict[str, list[str]] = {}
    for wheel in wheels:
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        link = f'<a href="{wheel.as_uri()}#sha256={digest}">{wheel.name}</a><br>'
        pages.setdefault(wheel.name.partition("-")[0].replace("_", "-"), []).append(link)
    for project, links in pages.items():
        page = folder / "simple" / project / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("<!DOCTYPE html><html><body>" + "\n".join(links) + "</body></html>")
    return (folder / "simple").as_uri()


PACKAGES = (
    "packaging",
    "pluggy",
    *(("tomli",) if sys.version_info < (3, 11) else ()),
)  # what hami-core and hami-tools require
UV = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


def acme_index(folder: Path) -> str:
    """Write an index of two plugins, one with two versions, and an empty hami-core; return its address."""
    wheels = folder / "wheels"
    return write_index(
        folder,
        [
            tiny_wheels.plugin(wheels, "acme-one", "1.0.0"),
            tiny_wheels.plugin(wheels, "acme-one", "2.0.0"),
            tiny_wheels.plugin(wheels, "acme-two", "1.0.0", requires="acme-one>=1"),
            tiny_wheels.empty(wheels, "hami-core", hami.__version__),
            tiny_wheels.empty(wheels, "hami-tools", metadata.version("hami-tools")),
        ],
    )


class HamiEnvironment:
    """A virtual environment in which the command line runs: links to the packages that the tests use."""

    def __init__(self, folder: Path, *packages: str) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.python = folder / "bin" / "python"
        paths = sysconfig.get_paths("posix_prefix", {"base": str(folder), "platbase": str(folder)})
        self.site = Path(paths["purelib"])
        for module in (hami, hami_tools):
            (self.site / module.__name__).symlink_to(Path(str(module.__file__)).resolve().parent)
        for name in ("hami-core", "hami-tools", *packages):
            self._link(metadata.distribution(name))

    def _link(self, found: metadata.Distribution) -> None:
        info = Path(str(found._path)).resolve()  # type: ignore[attr-defined]
        shutil.copytree(info, self.site / info.name)  # uv ignores metadata behind a link
        for top in {Path(str(found.locate_file(file.parts[0]))) for file in found.files or ()}:
            inside = top.is_dir() and top.resolve().parent == info.parent
            if inside and top.name != "__pycache__" and not (self.site / top.name).exists():
                (self.site / top.name).symlink_to(top.resolve())

    def hami(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the command line without the settings of this process."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HAMI_", "PIP_"))}
        return subprocess.run(
            [str(self.python), "-m", "hami", *arguments],
            capture_output=True,
            text=True,
            env={**kept, "PIP_NO_INDEX": "", "PIP_CONFIG_FILE": os.devnull, **environment},
            cwd=self.python.parent,
        )
