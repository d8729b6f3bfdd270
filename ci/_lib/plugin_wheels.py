"""The plugins' wheels: py3-none-any, each built from its own folder by the backend that its pyproject.toml names."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from .core_wheel import WHEELS, source_date
from .paths import CACHE, ROOT, content_key
from .steps import environment, run, step

PLUGINS = ROOT / "hami-plugins"


def folders() -> list[Path]:
    return sorted(path.parent for path in PLUGINS.glob("*/pyproject.toml"))


def finished(plugin: Path) -> Path:
    """Where the finished wheel of this plugin lies, or will."""
    return WHEELS / f"{plugin.name.replace('-', '_')}-{content_key([plugin])}"


def build(plugin: Path) -> Path:
    """The wheel of the plugin in folder `plugin`."""
    folder = finished(plugin)
    if not folder.is_dir():
        with step(f"building {plugin.name}"):
            work = CACHE / "build" / f"{plugin.name}-work"
            shutil.rmtree(work, ignore_errors=True)
            # pip may leave build folders in the source; a copy keeps the checkout clean.
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist", ".pytest_cache")
            shutil.copytree(plugin, work / "source", ignore=ignored)
            command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", work / "out", work / "source"]
            run(command, log=f"wheel-{plugin.name}", env=environment(SOURCE_DATE_EPOCH=source_date([plugin])))
            folder.parent.mkdir(parents=True, exist_ok=True)
            os.replace(work / "out", folder)
            shutil.rmtree(work)
    return next(folder.glob("*.whl"))
