"""Runs build backends (PEP 517), pinned and installed once into one folder that every interpreter uses."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from hami_build import pep517
from hami_build.steps import Failure, exclusive, step

from . import environments, preflight
from .paths import CACHE, REQUIREMENTS, content_key, pyproject

FOLDER = CACHE / "envs" / "backend"


def folder() -> Path:
    """Return the folder for PYTHONPATH. The backends are pure Python, so one copy serves every interpreter."""
    requirements = REQUIREMENTS / "backend.txt"
    stamp = content_key([requirements])
    with exclusive("env-backend"):
        if not environments.stamped(FOLDER, stamp):
            preflight.require_index("scikit-build-core")
            shutil.rmtree(FOLDER, ignore_errors=True)
            with step("installing the build backends"):
                environments.install(Path(sys.executable), "install-backend", "--target", FOLDER, "-r", requirements)
            (FOLDER / environments.STAMP).write_text(stamp)
    return FOLDER


def build(
    hook: str,
    source: Path,
    destination: Path,
    log: str,
    *,
    python: Path | None = None,
    settings: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
) -> Path:
    """Call `hook` ("build_wheel" or "build_sdist") for the project in `source` and return the file that it built."""
    backend = pyproject(source)["build-system"]["build-backend"]
    if not (folder() / backend.partition(".")[0]).is_dir():
        raise Failure(f"{source}/pyproject.toml uses {backend}: add it to ci/requirements/backend.txt")
    place = (source, destination, log)
    return pep517.build(hook, backend, *place, python=python, backends=folder(), settings=settings, env=env)
