"""Releases one package: preconditions, changes in the checkout, files to upload."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hami_build.steps import Failure
from packaging.version import InvalidVersion, Version

from . import changelog, compatibility
from .checkout import git

VERSION_LINE = re.compile(r'^version = "[^"]+"', re.MULTILINE)


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
    log = folder_of(root, package) / "CHANGELOG.md"
    try:
        new = Version(version)
    except InvalidVersion:
        raise Failure(f'"{version}" is not a version; write it like 0.2.0 or 1.0rc1') from None
    if str(new) != version:
        raise Failure(f'"{version}" is not normalised; write {new}')
    past = [Version(row.version) for row in compatibility.released(root) if row.package == package]
    if past and new <= max(past):
        raise Failure(f"{package} {max(past)} is already released; {version} is not newer")
    newest = changelog.newest(log)
    if newest is None or newest.released or not newest.text:
        heading = f"## {version}, {changelog.NOT_RELEASED}"
        raise Failure(f'{log} has no entry for this release: it must begin with "{heading}" and a list of changes')
    changed = git(root, "status", "--porcelain")
    if changed:
        raise Failure(f"the checkout has uncommitted changes:\n{changed}")


@contextmanager
def bumped(root: Path, package: str, version: str, day: str) -> Iterator[list[Path]]:
    """Write the new version everywhere; if the block raises, restore the files."""
    folder = folder_of(root, package)
    project, log = folder / "pyproject.toml", folder / "CHANGELOG.md"
    releases, page = root / compatibility.RELEASES, root / compatibility.PAGE
    files = [project, log, releases, page]
    before = {file: file.read_bytes() for file in files}
    try:
        project.write_text(VERSION_LINE.sub(f'version = "{version}"', project.read_text("utf-8"), count=1), "utf-8")
        log.write_text(changelog.HEADING.sub(f"## {version}, {day}", log.read_text("utf-8"), count=1), "utf-8")
        entry = compatibility.entry(compatibility.row(root, package, day))
        releases.write_text(releases.read_text("utf-8") + entry, "utf-8")
        page.write_text(compatibility.page(root), "utf-8")
        yield files
    except BaseException:
        for file, data in before.items():
            file.write_bytes(data)
        raise


def problems(root: Path, package: str, version: str) -> list[str]:
    """Return the reasons why this checkout is not the release `version` of `package`."""
    folder = folder_of(root, package)
    declared = compatibility.row(root, package).version
    newest = changelog.newest(folder / "CHANGELOG.md")
    known = {(row.package, row.version) for row in compatibility.released(root)}
    found = {
        f"pyproject.toml of {package} says {declared}": declared != version,
        f"the changelog of {package} does not name {version} with the day of its release": newest is None
        or newest.version != version
        or not newest.released,
        f"{compatibility.RELEASES} does not have {package} {version}": (package, version) not in known,
        f"{compatibility.PAGE} is stale": (root / compatibility.PAGE).read_text("utf-8") != compatibility.page(root),
    }
    return [problem for problem, there in found.items() if there]


def of_package(files: Sequence[Path], package: str) -> list[Path]:
    """Return the files that belong to `package`."""
    return [file for file in files if file.name.startswith(f"{package.replace('-', '_')}-")]


def instructions(root: Path, package: str, version: str, files: Sequence[Path]) -> str:
    """Return a text that lists the files and how to upload them."""
    lines = [f"{package} {version} is ready. To upload:", ""]
    for file in files:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        lines.append(f"  {file.relative_to(root)}  {file.stat().st_size / 1000:.0f} kB  sha256 {digest}")
    name = tag(package, version)
    lines += [
        "",
        "With the release workflow, which builds the same files again and publishes them:",
        f'  git commit --all --message "{package} {version}" && git tag {name} && git push origin HEAD {name}',
        "By hand:",
        f"  twine upload {' '.join(str(file.relative_to(root)) for file in files)}",
    ]
    return "\n".join(lines)
