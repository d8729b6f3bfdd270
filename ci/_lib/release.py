"""Releases one package of this checkout: `hami_build.release`, and the table of releases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hami_build import release
from hami_build.steps import Failure

from . import compatibility


def folder_of(root: Path, package: str) -> Path:
    found = compatibility.projects(root)
    if package not in found:
        raise Failure(f'unknown package "{package}"; this checkout contains {", ".join(found)}')
    return found[package]


def tag(package: str, version: str) -> str:
    """Return the tag that starts the release workflow."""
    return f"{package}-v{version}"


def require_ready(root: Path, package: str, version: str) -> None:
    """Fail if `package` cannot be released as `version`; this changes nothing."""
    past = [row.version for row in compatibility.released(root) if row.package == package]
    release.require_ready(folder_of(root, package), version, past)


@contextmanager
def bumped(root: Path, package: str, version: str, day: str) -> Iterator[list[Path]]:
    """Write the new version everywhere; if the block raises, restore the files."""
    releases = root / compatibility.RELEASES

    def listed() -> str:
        return releases.read_text("utf-8") + compatibility.entry(compatibility.row(root, package, day))

    others = {releases: listed, root / compatibility.PAGE: lambda: compatibility.page(root)}
    with release.bumped(folder_of(root, package), version, day, others) as files:
        yield files


def problems(root: Path, package: str, version: str) -> list[str]:
    """Return the reasons why this checkout is not the release `version` of `package`."""
    known = {(row.package, row.version) for row in compatibility.released(root)}
    found = {
        f"{compatibility.RELEASES} does not have {package} {version}": (package, version) not in known,
        f"{compatibility.PAGE} is stale": (root / compatibility.PAGE).read_text("utf-8") != compatibility.page(root),
    }
    own = release.problems(folder_of(root, package), version)
    return [*own, *(problem for problem, there in found.items() if there)]


def of_package(files: Sequence[Path], package: str) -> list[Path]:
    """Return the files that belong to `package`."""
    return [file for file in files if file.name.startswith(f"{package.replace('-', '_')}-")]
