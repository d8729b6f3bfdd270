"""Runs build backends (PEP 517), pinned and installed once into one folder that every interpreter uses."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from . import environments, preflight
from .paths import CACHE, REQUIREMENTS, content_key, pyproject
from .steps import Failure, environment, exclusive, run, step

# The date of every file in a wheel: wheels depend neither on the time of the build nor on the git history.
EPOCH = "1577836800"
FOLDER = CACHE / "envs" / "backend"
CALL = """
import importlib, json, sys
hook, backend, destination, settings = sys.argv[1:]
getattr(importlib.import_module(backend), hook)(destination, json.loads(settings))
"""


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
    destination.mkdir(parents=True)
    command = [python or sys.executable, "-S", "-c", CALL, hook, backend, destination, json.dumps(dict(settings or {}))]
    path = {"PYTHONPATH": str(folder()), "SOURCE_DATE_EPOCH": EPOCH}
    run(command, log=log, env={**(environment() if env is None else env), **path}, cwd=source)
    return next(file for file in destination.iterdir() if file.is_file())
