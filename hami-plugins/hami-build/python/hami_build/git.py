"""Runs git."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hami_build.errors import Failure


def git(folder: Path, *arguments: str) -> str:
    """Return the output of a command of git in a folder."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Failure("git is not installed; install it, it lists the files of a checkout") from None
    if done.returncode != 0:
        raise Failure(done.stderr.strip())
    return done.stdout.rstrip()
