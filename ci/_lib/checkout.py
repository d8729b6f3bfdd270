"""Asks git about the checkout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hami_build.git import git
from hami_build.steps import Failure

from .paths import source_files


def tracked(root: Path, paths: Sequence[Path]) -> list[Path]:
    """Return the existing files in `paths` that git tracks; every file if `root` is not a checkout.

    This also works in a container where the checkout belongs to another user, as git is asked only for names.
    """
    if not (root / ".git").exists():
        return source_files(paths)
    names = git(root, "-c", "safe.directory=*", "ls-files", "-z", "--", *map(str, paths)).split("\0")
    return [root / name for name in names if name and (root / name).is_file()]


def known_files(root: Path, paths: Sequence[Path] = ()) -> list[str]:
    """Return the files that git tracks or would add, relative to `root`, optionally only those in `paths`."""
    names = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *map(str, paths))
    return sorted({name for name in names.split("\0") if name and (root / name).is_file()})


def changed_files(root: Path) -> tuple[list[str], str]:
    """Return the files that differ from the commit where this branch left `main`, and the name of that base.

    Uncommitted changes, untracked files and deleted files count.
    """
    untracked = git(root, "ls-files", "--others", "--exclude-standard", "-z")
    base, compared = "HEAD", "the last commit"
    for branch in ("origin/main", "main"):
        try:
            base = git(root, "merge-base", "HEAD", branch)
        except Failure:  # this checkout does not have the branch
            continue
        compared = branch
        break
    differ = git(root, "diff", "--name-only", "--no-renames", "-z", base)
    return sorted({name for text in (differ, untracked) for name in text.split("\0") if name}), compared
