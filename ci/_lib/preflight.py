"""What is looked at before anything is changed: that the package index answers, and that there is room on the disk."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from .steps import Failure, environment

INDEX_HINT = "The package index must be reachable; pip's own settings (PIP_INDEX_URL, proxies) apply."


@cache
def require_index(package: str) -> None:
    """Fail if pip finds no index with `package`; asked only if something is to be installed."""
    with tempfile.TemporaryDirectory() as folder:
        python = sys.executable
        if importlib.util.find_spec("pip") is None:  # Debian's has it in environments only
            import venv  # not there on every machine, which is told before this (environments.require_venv)

            venv.create(folder, symlinks=True, with_pip=True)
            python = f"{folder}/bin/python"
        command = [python, "-m", "pip", "index", "versions", package, "--retries", "1", "--timeout", "20"]
        result = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if result.returncode != 0:
        said = result.stderr.strip().splitlines() or ["pip said nothing"]
        raise Failure(f"{said[-1]}\nNothing was changed. {INDEX_HINT}")


def require_room(folder: Path, megabytes: int) -> None:
    """Fail if fewer than `megabytes` are free where `folder` is or will be."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(there).free // 1_000_000
    if free < megabytes:
        raise Failure(
            f"{free} MB are free in {there}, and {megabytes} MB are needed. Nothing was changed. "
            "Make room, or name another place with HAMI_CACHE."
        )
    if not os.access(there, os.W_OK):
        raise Failure(f"{there} is not writable. Nothing was changed. Name another place with HAMI_CACHE.")
