"""Asks git about the checkout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hami_build.git import git
from hami_build.steps import Failure


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
