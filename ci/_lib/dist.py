"""dist/: the folder that `pip install --find-links` installs from, always of the current sources."""

from __future__ import annotations

import shutil
from pathlib import Path

from . import audit, core_wheel, headers, plugin_wheels
from .interpreters import Interpreter
from .paths import DIST
from .steps import Failure, step


def build(interpreters: list[Interpreter]) -> tuple[list[Path], list[str]]:
    """Build and audit the core for `interpreters` and every plugin; the wheels in dist/, and why any is missing."""
    skipped = []
    for interpreter in interpreters:
        try:
            core_wheel.build(interpreter)
        except headers.NoHeaders as reason:
            skipped.append(str(reason))
    if len(skipped) == len(interpreters):
        raise headers.NoHeaders("\n".join(["hami-core could be built for no Python:", *skipped]))
    for plugin in plugin_wheels.folders():
        plugin_wheels.build(plugin)
    return collect(), skipped


def current() -> list[Path]:
    """Every finished wheel of the current sources, also those of an earlier run for other Pythons."""
    folders = [core_wheel.WHEELS / f"hami_core-{core_wheel.key()}"]
    folders += [plugin_wheels.finished(plugin) for plugin in plugin_wheels.folders()]
    return sorted(wheel for folder in folders for wheel in folder.rglob("*.whl"))


def collect() -> list[Path]:
    """Make dist/ hold the current wheels and nothing else; wheels of sources that are gone leave the cache."""
    wheels = current()
    for folder in core_wheel.WHEELS.iterdir():
        if not any(wheel.is_relative_to(folder) for wheel in wheels):
            shutil.rmtree(folder)
    DIST.mkdir(exist_ok=True)
    for old in DIST.glob("*.whl"):
        old.unlink()
    return [Path(shutil.copy2(wheel, DIST)) for wheel in wheels]


def findings(wheels: list[Path]) -> list[audit.Finding]:
    """Everything that the audit found about `wheels`."""
    with step(f"auditing {len(wheels)} wheels"):
        return audit.audit_all(wheels)


def audited(wheels: list[Path]) -> list[audit.Finding]:
    """The findings about `wheels`; raises Failure if one of them is bad."""
    found = findings(wheels)
    wrong = [str(finding) for finding in found if not finding.passed]
    if wrong:
        raise Failure("\n".join(wrong))
    return found
