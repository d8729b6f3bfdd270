"""Prepares a release of a project: preconditions, the new version in its files, and what to upload."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from hami_build import changelog, index, project
from hami_build.errors import Failure
from hami_build.git import git

VERSION_LINE = re.compile(r'^version = "[^"]+"', re.MULTILINE)
# A native plugin states its version in one source.
SOURCE_VERSION = re.compile(r'(HAMI_PLUGIN\("[^"]*", )"[^"]*"')


def require_ready(folder: Path, version: str, past: Sequence[str] = ()) -> None:
    """Raise Failure if a project cannot be released as `version`; `past` are its released versions."""
    name, log = project.read(folder).name, folder / "CHANGELOG.md"
    require_newer(name, version, past)
    newest = changelog.newest(log)
    if newest is None or newest.released or not newest.text:
        heading = f"## {version}, {changelog.NOT_RELEASED}"
        raise Failure(f'{log} has no entry for this release: it must begin with "{heading}" and a list of changes')
    if changed := git(folder, "status", "--porcelain"):
        raise Failure(f"the checkout has uncommitted changes:\n{changed}")


def require_newer(name: str, version: str, past: Sequence[str]) -> None:
    """Raise Failure if a text is not a version in its normal form, newer than those that were released."""
    try:
        new = Version(version)
    except InvalidVersion:
        raise Failure(f'"{version}" is not a version; write it like 0.2.0 or 1.0rc1') from None
    if str(new) != version:
        raise Failure(f'"{version}" is not normalised; write {new}')
    newest = max(map(Version, past), default=None)
    if newest is not None and new <= newest:
        raise Failure(f"{name} {newest} is already released; {version} is not newer")


@contextmanager
def bumped(
    folder: Path, version: str, day: str, others: Mapping[Path, Callable[[], str]] | None = None
) -> Iterator[list[Path]]:
    """Write the new version into the files of a project and yield them; if the block raises, restore them.

    Args:
        folder: The project, with pyproject.toml and CHANGELOG.md.
        version: The new version.
        day: The day of the release, for the changelog.
        others: Further files with functions that return their new text, called in this order after the version changed.
    """
    changes: dict[Path, Callable[[], str]] = {
        **{file: _replaced(file, pattern, text) for file, pattern, text in _places(folder, version, day)},
        **(others or {}),
    }
    before = {file: file.read_bytes() for file in changes}
    try:
        for file, text in changes.items():
            file.write_text(text(), "utf-8")
        yield list(changes)
    except BaseException:
        for file, data in before.items():
            file.write_bytes(data)
        raise


def _places(folder: Path, version: str, day: str) -> Iterator[tuple[Path, re.Pattern[str], str]]:
    yield folder / "pyproject.toml", VERSION_LINE, f'version = "{version}"'
    yield folder / "CHANGELOG.md", changelog.HEADING, f"## {version}, {day}"
    for source in sorted((folder / "src").rglob("*.cpp")):
        if SOURCE_VERSION.search(source.read_text("utf-8")):
            yield source, SOURCE_VERSION, rf'\g<1>"{version}"'


def _replaced(file: Path, pattern: re.Pattern[str], text: str) -> Callable[[], str]:
    return lambda: pattern.sub(text, file.read_text("utf-8"), count=1)


def problems(folder: Path, version: str) -> list[str]:
    """Return the reasons why the files of a project are not those of a release."""
    declared, name = project.read(folder).version, project.read(folder).name
    newest = changelog.newest(folder / "CHANGELOG.md")
    dated = newest is not None and newest.version == version and newest.released
    found = {
        f"pyproject.toml of {name} says {declared}": declared != version,
        f"the changelog of {name} does not name {version} with the day of its release": not dated,
    }
    return [problem for problem, there in found.items() if there]


@dataclass(frozen=True)
class Ready:
    """A release that can be uploaded."""

    name: str
    version: str
    tag: str  # that starts the release workflow
    files: Sequence[Path]

    @property
    def commands(self) -> dict[str, str]:
        """The commands that publish it: by the release workflow, which builds the same files again, or by hand."""
        commit = f'git commit --all --message "{self.name} {self.version}"'
        return {
            "workflow": f"{commit} && git tag {self.tag} && git push origin HEAD {self.tag}",
            "by hand": f"twine upload {' '.join(map(shown, self.files))}",
        }

    def text(self) -> str:
        """Return a text that lists the files and how to upload them."""
        lines = [f"{self.name} {self.version} is ready. To upload:", ""]
        for file in self.files:
            lines.append(f"  {shown(file)}  {file.stat().st_size / 1000:.0f} kB  sha256 {index.sha256(file)}")
        return "\n".join(
            [
                *lines,
                "",
                "With the release workflow, which builds the same files again and publishes them:",
                f"  {self.commands['workflow']}",
                "By hand:",
                f"  {self.commands['by hand']}",
            ]
        )

    def as_json(self) -> dict[str, Any]:
        """Return the same as values for JSON."""
        files = [{"file": str(file), "sha256": index.sha256(file)} for file in self.files]
        return {
            "name": self.name,
            "version": self.version,
            "tag": self.tag,
            "files": files,
            "commands": self.commands,
        }


def shown(file: Path) -> str:
    """Return the path of a file, relative to the current folder if it is inside."""
    file = file.resolve()
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)
