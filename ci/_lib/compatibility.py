"""The compatibility table: versions and requirements of the packages of this checkout and of every release."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .paths import pyproject, read_toml

PAGE = Path("hami-core", "docs", "reference", "compatibility.md")
RELEASES = Path("ci", "releases.toml")
ABI_SOURCE = Path("hami-core", "src", "plugin", "host_table.hpp")
HEADER = Path("hami-core", "include", "hami", "abi.h")
TOP = """\
# Compatibility

A plugin runs with the version of `hami-core` in its row and with every later version. A native plugin runs with every
`hami-core` that serves the same major version of the plugin ABI and at least the same minor version. `hami doctor`
lists the installed versions. [Tested versions](tested-versions.md) shows which were run with each other.

`python ci/compatibility.py` writes this page from the metadata of the packages.

| package | version | released | hami-core | plugin ABI | other requirements |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    package: str
    version: str
    released: str  # the day; "" before the release
    core: str
    abi: str
    needs: str

    def line(self) -> str:
        cells = (f"`{self.package}`", self.version, self.released or "not yet", self.core, self.abi, self.needs)
        return f"| {' | '.join(cell or '-' for cell in cells)} |\n"


def projects(root: Path) -> dict[str, Path]:
    """Return every package of the checkout with its folder, the core first."""
    plugins = {path.parent.name: path.parent for path in sorted((root / "hami-plugins").glob("*/pyproject.toml"))}
    return {"hami-core": root, **plugins}


def row(root: Path, package: str, released: str = "") -> Row:
    """Return the row of a package, from its current metadata."""
    folder = projects(root)[package]
    project = pyproject(folder)["project"]
    needs = {re.split(r"[^\w.-]", text, maxsplit=1)[0]: text for text in project.get("dependencies", [])}
    core = needs.pop("hami-core", "").removeprefix("hami-core")
    extras = project.get("optional-dependencies", {})
    chosen = [f"{text} with [{extra}]" for extra, texts in extras.items() if extra != "test" for text in texts]
    abi = f"serves {served(root)}" if package == "hami-core" else needed(folder, root)
    return Row(package, project["version"], released, core, abi, ", ".join([*needs.values(), *chosen]))


def served(root: Path) -> str:
    """Return the version of the plugin ABI that the core serves."""
    minor = number(r"kAbiMinor = (\d+)", root / ABI_SOURCE)
    return f"{major(root)}.{minor}"


def needed(plugin: Path, root: Path) -> str:
    """Return the version of the plugin ABI that a native plugin needs; "" for a plugin in Python."""
    sources = sorted((plugin / "src").rglob("*.[ch]pp")) if (plugin / "CMakeLists.txt").is_file() else []
    if not sources:
        return ""
    text = "".join(path.read_text("utf-8") for path in [plugin / "CMakeLists.txt", *sources])
    minors = [int(minor) for minor in re.findall(r"HAMI_ABI_(?:USE_MINOR|TARGET)[ =](\d+)", text)]
    return f"needs {major(root)}.{max(minors, default=0)}"


def major(root: Path) -> int:
    return number(r"#define HAMI_ABI_MAJOR (\d+)", root / HEADER)


def number(pattern: str, file: Path) -> int:
    found = re.search(pattern, file.read_text("utf-8"))
    if not found:
        raise ValueError(f"{file} has no {pattern}")
    return int(found.group(1))


def released(root: Path) -> list[Row]:
    """Return every release, oldest first."""
    return [Row(**entry) for entry in read_toml(root / RELEASES).get("release", [])]


def page(root: Path) -> str:
    """Return the page: packages that are not released yet, then the releases, the newest first."""
    past = released(root)
    known = {(entry.package, entry.version) for entry in past}
    now = [row(root, package) for package in projects(root)]
    rows: Sequence[Row] = [*(entry for entry in now if (entry.package, entry.version) not in known), *reversed(past)]
    return TOP + "".join(entry.line() for entry in rows)


def entry(new: Row) -> str:
    """Return a release as an entry of ci/releases.toml."""
    return "\n[[release]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in asdict(new).items())
