"""Builds every file again, from a copy of the checkout in another folder, to compare the bytes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hami_build import zig
from hami_build.interpreters import Interpreter
from hami_build.steps import environment, run, step

from .paths import CACHE, NOT_SOURCE_FOLDERS, ROOT

SHARED = ("envs/tools", f"zig/{zig.TARGET}")  # compilers, which are not built from the checkout


def in_another_folder(interpreter: Interpreter) -> list[Path]:
    """Return the files that ci/wheels builds there for one Python."""
    place = CACHE / "another" / "place"
    shutil.rmtree(place.parent, ignore_errors=True)
    checkout, cache = place / "checkout", place / "cache"
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(".cache", "wheelhouse", *NOT_SOURCE_FOLDERS))
    for shared in SHARED:
        (cache / shared).parent.mkdir(parents=True, exist_ok=True)
        (cache / shared).symlink_to(CACHE / shared)
    python = cache / "envs" / "tools" / "bin" / "python"
    command = [python, checkout / "ci" / "wheels", "--python", interpreter.executable, "--sdist"]
    with step("building everything from another folder"):
        run(command, log="another-folder", env=environment(HAMI_CACHE=str(cache)), cwd=Path(os.sep))
    return sorted((checkout / "dist").iterdir())
