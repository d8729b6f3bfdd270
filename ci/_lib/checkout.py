"""What git knows of the checkout."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from .paths import source_files
from .steps import Failure


def git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Failure("git is not installed here, and it is needed to know what belongs to this checkout") from None
    if done.returncode != 0:
        raise Failure(done.stderr.strip())
    return done.stdout.rstrip()


def tracked(root: Path, paths: Sequence[Path]) -> list[Path]:
    """The files there are among `paths` and below them that git tracks; all of them where `root` is no checkout.

    Also in a container, where the checkout may belong to another user: git is asked for nothing but names.
    """
    if not (root / ".git").exists():
        return source_files(paths)
    names = git(root, "-c", "safe.directory=*", "ls-files", "-z", "--", *map(str, paths)).split("\0")
    return [root / name for name in names if name and (root / name).is_file()]


def known_files(root: Path, paths: Sequence[Path] = ()) -> list[str]:
    """The files that git tracks or would add, relative to `root`; `paths` limits them to these and what is below."""
    names = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *map(str, paths))
    return sorted({name for name in names.split("\0") if name and (root / name).is_file()})


def changed_files(root: Path) -> tuple[list[str], str]:
    """The files that differ from where this branch left `main`, with what they are compared to.

    Uncommitted changes, untracked files and deleted files count.
    """
    untracked = git(root, "ls-files", "--others", "--exclude-standard", "-z")
    base, compared = "HEAD", "the last commit"
    for branch in ("origin/main", "main"):
        try:
            base = git(root, "merge-base", "HEAD", branch)
        except Failure:  # there is no such branch here
            continue
        compared = branch
        break
    differ = git(root, "diff", "--name-only", "--no-renames", "-z", base)
    return sorted({name for text in (differ, untracked) for name in text.split("\0") if name}), compared
