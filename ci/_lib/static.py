"""The checks that run nothing of the product, by pre-commit: .pre-commit-config.yaml lists them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hami_build.steps import environment

from .paths import CACHE, ROOT


def run(python: Path, *options: str, files: Sequence[str], capture: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the hooks that `options` choose for `files`, with the tools in the environment of `python`."""
    env = environment(
        PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        PRE_COMMIT_HOME=str(CACHE / "pre-commit"),
        MYPY_CACHE_DIR=str(CACHE / "mypy"),
        RUFF_CACHE_DIR=str(CACHE / "ruff"),
    )
    command = [str(python), "-m", "pre_commit", "run", "--color", "never", *options, "--files", *files]
    output = subprocess.PIPE if capture else None
    return subprocess.run(command, cwd=ROOT, env=env, check=False, text=True, stdout=output, stderr=subprocess.STDOUT)
