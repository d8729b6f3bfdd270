"""Checks before anything is changed: the package index responds, and the disk has enough space."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from hami_build.steps import Failure, environment

INDEX_HINT = "The package index must be reachable; pip's own settings (PIP_INDEX_URL, proxies) apply."


@cache
def require_index(package: str) -> None:
    """Fail if pip does not find `package` on its index; called only before something is installed."""
    with tempfile.TemporaryDirectory() as folder:
        python = sys.executable
        if importlib.util.find_spec("pip") is None:  # Debian provides pip only inside environments
            import venv  # environments.require_venv has checked that it exists

            venv.create(folder, symlinks=True, with_pip=True)
            python = f"{folder}/bin/python"
        command = [python, "-m", "pip", "index", "versions", package, "--retries", "1", "--timeout", "20"]
        result = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if result.returncode != 0:
        said = result.stderr.strip().splitlines() or ["pip failed without a message"]
        raise Failure(f"{said[-1]}\nNothing was changed. {INDEX_HINT}")


def require_room(folder: Path, megabytes: int) -> None:
    """Fail if fewer than `megabytes` are free on the disk of `folder`."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(there).free // 1_000_000
    if free < megabytes:
        raise Failure(
            f"{free} MB are free in {there}, and {megabytes} MB are needed. Nothing was changed. "
            "Free some space, or set HAMI_CACHE to another folder."
        )
    if not os.access(there, os.W_OK):
        raise Failure(f"{there} is not writable. Nothing was changed. Set HAMI_CACHE to another folder.")
