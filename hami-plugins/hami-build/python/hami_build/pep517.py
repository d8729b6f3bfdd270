"""Calls build backends (PEP 517) that are installed already: nothing is downloaded while a project is built."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from hami_build.steps import environment, run

# The date of every file in a wheel: wheels depend neither on the time of the build nor on the git history.
EPOCH = "1577836800"
CALL = """
import importlib, json, sys
hook, backend, destination, settings = sys.argv[1:]
getattr(importlib.import_module(backend), hook)(destination, json.loads(settings))
"""


def build(
    hook: str,
    backend: str,
    source: Path,
    destination: Path,
    log: str,
    *,
    python: Path | None = None,
    backends: Path | None = None,
    settings: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
) -> Path:
    """Call `hook`, such as "build_wheel", of a backend for the project in `source`; return the file or folder it wrote.

    `backends` is a folder with build backends for a Python that has none; else they are those of this environment.
    """
    destination.mkdir(parents=True)
    isolated = ["-S"] if backends else []
    command = [
        python or sys.executable,
        *isolated,
        "-c",
        CALL,
        hook,
        backend,
        destination,
        json.dumps(dict(settings or {})),
    ]
    path = {"PYTHONPATH": str(backends)} if backends else {}
    whole = {**(environment() if env is None else env), **path, "SOURCE_DATE_EPOCH": EPOCH}
    run(command, log=log, env=whole, cwd=source)
    return next(path for path in destination.iterdir() if path.is_file() or path.suffix == ".dist-info")
