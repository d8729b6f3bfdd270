"""The core's wheel once more, from a copy of the checkout in another folder: is it the same to the last byte?"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from . import zig
from .interpreters import Interpreter
from .paths import CACHE, ROOT
from .steps import environment, run, step

FILES = [ROOT / name for name in ("CHANGELOG.md", "CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml")]
FOLDERS = [ROOT / name for name in ("ci", "hami-core", "hami-plugins", "tests")]
SHARED = ("envs/tools", "envs/backend", f"zig/{zig.TARGET}")  # compilers, not compiled from the checkout


def in_another_folder(interpreter: Interpreter) -> Path:
    """The wheel that ci/wheels makes there."""
    place = CACHE / "another" / "place"
    shutil.rmtree(place.parent, ignore_errors=True)
    cache = place / "cache"
    (place / "checkout").mkdir(parents=True)
    for file in FILES:
        shutil.copy(file, place / "checkout")
    for folder in FOLDERS:
        shutil.copytree(folder, place / "checkout" / folder.name)
    for shared in SHARED:
        (cache / shared).parent.mkdir(parents=True, exist_ok=True)
        (cache / shared).symlink_to(CACHE / shared)
    python = cache / "envs" / "tools" / "bin" / "python"
    command = [python, place / "checkout" / "ci" / "wheels", "--python", interpreter.executable]
    with step("building hami-core from another folder"):
        run(command, log="another-folder", env=environment(HAMI_CACHE=str(cache)), cwd=Path(os.sep))
    return next((place / "checkout" / "dist").glob("hami_core-*.whl"))
