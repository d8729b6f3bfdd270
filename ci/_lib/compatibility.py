"""Which version of what goes with which: the packages of this checkout, and every release before."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .paths import pyproject, read_toml

PAGE = Path("hami-core", "docs", "reference", "compatibility.md")
RELEASES = Path("ci", "releases.toml")
CONTRACT = Path("hami-core", "src", "plugin", "host_table.hpp")
HEADER = Path("hami-core", "include", "hami", "abi.h")
TOP = """\
# Compatibility

A plugin runs with the `hami-core` that its row names and with every later one. A native plugin runs with every one that
serves the same major version of the contract and no older minor version. `hami doctor` says what of this is installed.

Written by `python ci/compatibility.py` from what the packages declare.

| package | version | released | hami-core | native contract | needs besides |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    package: str
    version: str
    released: str  # the day; "" if it is not
    core: str
    contract: str
    needs: str

    def line(self) -> str:
        cells = (f"`{self.package}`", self.version, self.released or "not yet", self.core, self.contract, self.needs)
        return f"| {' | '.join(cell or '-' for cell in cells)} |\n"


def projects(root: Path) -> dict[str, Path]:
    """Every package of the checkout and its folder, the core first."""
    plugins = {path.parent.name: path.parent for path in sorted((root / "hami-plugins").glob("*/pyproject.toml"))}
    return {"hami-core": root, **plugins}


def row(root: Path, package: str, released: str = "") -> Row:
    """What the package declares now."""
    folder = projects(root)[package]
    project = pyproject(folder)["project"]
    needs = {re.split(r"[^\w.-]", text, maxsplit=1)[0]: text for text in project.get("dependencies", [])}
    core = needs.pop("hami-core", "").removeprefix("hami-core")
    extras = project.get("optional-dependencies", {})
    chosen = [f"{text} with [{extra}]" for extra, texts in extras.items() if extra != "test" for text in texts]
    contract = f"serves {served(root)}" if package == "hami-core" else needed(folder, root)
    return Row(package, project["version"], released, core, contract, ", ".join([*needs.values(), *chosen]))


def served(root: Path) -> str:
    """The version of the native contract that the core has."""
    minor = number(r"kAbiMinor = (\d+)", root / CONTRACT)
    return f"{major(root)}.{minor}"


def needed(plugin: Path, root: Path) -> str:
    """The version of the contract that a native plugin asks for; "" for one in Python."""
    sources = sorted((plugin / "src").rglob("*.cpp")) if (plugin / "CMakeLists.txt").is_file() else []
    if not sources:
        return ""
    text = "".join(path.read_text("utf-8") for path in [plugin / "CMakeLists.txt", *sources])
    minors = [int(minor) for minor in re.findall(r"HAMI_ABI_USE_MINOR[ =](\d+)", text)]
    return f"needs {major(root)}.{max(minors, default=0)}"


def major(root: Path) -> int:
    return number(r"#define HAMI_ABI_MAJOR (\d+)", root / HEADER)


def number(pattern: str, file: Path) -> int:
    found = re.search(pattern, file.read_text("utf-8"))
    if not found:
        raise ValueError(f"{file} has no {pattern}")
    return int(found.group(1))


def released(root: Path) -> list[Row]:
    """Every release so far, oldest first."""
    return [Row(**entry) for entry in read_toml(root / RELEASES).get("release", [])]


def page(root: Path) -> str:
    """The table: what is not released yet, then the releases, the newest first."""
    past = released(root)
    known = {(entry.package, entry.version) for entry in past}
    now = [row(root, package) for package in projects(root)]
    rows: Sequence[Row] = [*(entry for entry in now if (entry.package, entry.version) not in known), *reversed(past)]
    return TOP + "".join(entry.line() for entry in rows)


def entry(new: Row) -> str:
    """A release as ci/releases.toml has it."""
    return "\n[[release]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in asdict(new).items())
