"""Writes installed distributions into a folder without pip: fast, and also in forms that pip does not write."""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib

PROJECTS = Path(__file__).parent

EntryPoints = Mapping[str, Mapping[str, str]]


def install(project: str, target: Path) -> None:
    """Install one of the projects in this folder."""
    folder = PROJECTS / project
    data = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            shutil.copytree(entry, target / entry.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif entry.suffix == ".py":
            shutil.copy(entry, target / entry.name)
    write_metadata(target, data["name"], data["version"], data["entry-points"])


def write_metadata(target: Path, name: str, version: str, entry_points: EntryPoints | None = None) -> Path:
    """Write the dist-info folder of a distribution and return it."""
    folder = target / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, entries in (entry_points or {}).items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()), ""]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    return folder


def write_plugin(target: Path, name: str, version: str, *backends: str) -> Path:
    """Write a plugin whose backends return their data, and return its dist-info folder."""
    module = name.replace("-", "_") + "_plugin"
    entry_points = {"hami.backends": dict.fromkeys(backends, module), "hami": {name.partition("-")[2]: module}}
    info = write_metadata(target, name, version, entry_points)
    (target / f"{module}.py").write_text(
        "import pluggy\n"
        "import hami\n"
        "class Echo(hami.Backend):\n"
        "    def forward(self, batch):\n"
        "        for item in batch:\n"
        "            item['result'] = item['data']\n"
        "@pluggy.HookimplMarker('hami')\n"
        "def hami_register(registry):\n"
        f"    for name in {backends!r}:\n"
        f"        registry.add(name, '{module}:Echo')\n"
    )
    return info


def write_record(target: Path, info: Path, *files: str) -> None:
    """Write the RECORD of a distribution with `files`, like pip."""
    lines = []
    for name in files:
        digest = hashlib.sha256((target / name).read_bytes()).digest()
        lines.append(f"{name},sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')},")
    (info / "RECORD").write_text("\n".join([*lines, f"{info.name}/RECORD,,"]) + "\n")
