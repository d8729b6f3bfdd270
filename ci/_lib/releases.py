"""Releases of the packages: the compatibility table, and what `hami_build.release` does for one package of many."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from hami_build import release
from hami_build.steps import Failure

from .paths import pyproject, read_toml

PAGE = Path("hami-core", "docs", "reference", "compatibility.md")
RELEASES = Path("ci", "releases.toml")
ABI_SOURCE = Path("hami-core", "src", "plugin", "host_table.hpp")
HEADER = Path("hami-core", "include", "hami", "abi.h")
MAJOR, MINOR = r"#define HAMI_ABI_MAJOR (\d+)", r"kAbiMinor = (\d+)"
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
    return f"{numbers(MAJOR, root / HEADER)[0]}.{numbers(MINOR, root / ABI_SOURCE)[0]}"


def needed(plugin: Path, root: Path) -> str:
    """Return the version of the plugin ABI that a native plugin needs; "" for a plugin in Python."""
    cmake = plugin / "CMakeLists.txt"
    sources = sorted((plugin / "src").rglob("*.[ch]pp")) if cmake.is_file() else []
    if not sources:
        return ""
    minors = numbers(r"HAMI_ABI_(?:USE_MINOR|TARGET)[ =](\d+)", cmake, *sources)
    return f"needs {numbers(MAJOR, root / HEADER)[0]}.{max(minors, default=0)}"


def numbers(pattern: str, *files: Path) -> list[int]:
    """Return the numbers that the group of the pattern matches in these files."""
    return [int(number) for file in files for number in re.findall(pattern, file.read_text("utf-8"))]


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


# ---- a new release ----


def require_ready(root: Path, package: str, version: str) -> None:
    """Fail if `package` cannot be released as `version`; this changes nothing."""
    if package not in projects(root):
        raise Failure(f'unknown package "{package}"; this checkout contains {", ".join(projects(root))}')
    past = [entry.version for entry in released(root) if entry.package == package]
    release.require_ready(projects(root)[package], version, past)


@contextmanager
def bumped(root: Path, package: str, version: str, day: str) -> Iterator[list[Path]]:
    """Write the new version everywhere; if the block raises, restore the files."""

    def listed() -> str:
        entry = "".join(f"{key} = {json.dumps(value)}\n" for key, value in asdict(row(root, package, day)).items())
        return f"{(root / RELEASES).read_text('utf-8')}\n[[release]]\n{entry}"

    others = {root / RELEASES: listed, root / PAGE: lambda: page(root)}
    with release.bumped(projects(root)[package], version, day, others) as files:
        yield files


def problems(root: Path, package: str, version: str) -> list[str]:
    """Return the reasons why this checkout is not the release `version` of `package`."""
    known = {(entry.package, entry.version) for entry in released(root)}
    found = {
        f"{RELEASES} does not have {package} {version}": (package, version) not in known,
        f"{PAGE} is stale": (root / PAGE).read_text("utf-8") != page(root),
    }
    own = release.problems(projects(root)[package], version)
    return [*own, *(problem for problem, there in found.items() if there)]


def tag(package: str, version: str) -> str:
    """Return the tag that starts the release workflow."""
    return f"{package}-v{version}"


def of_package(files: Sequence[Path], package: str) -> list[Path]:
    """Return the files that belong to `package`."""
    return [file for file in files if file.name.startswith(f"{package.replace('-', '_')}-")]
