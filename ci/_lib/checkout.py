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
