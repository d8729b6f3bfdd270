"""Fills dist/, the folder for `pip install --find-links`, with files of the current sources."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from hami_build import headers, zig
from hami_build.audit import Finding
from hami_build.interpreters import Interpreter
from hami_build.parallel import in_parallel
from hami_build.steps import Failure, exclusive, step

from . import audit, core_wheel, plugin_wheels, preflight, sdists
from .paths import CACHE, DIST, ROOT

Jobs = dict[str, Callable[[], object]]


def build(
    interpreters: Sequence[Interpreter],
    architectures: Sequence[str] = (zig.HOST,),
    plugins: Sequence[Path] | None = None,
    *,
    with_sdists: bool = False,
) -> tuple[list[Path], list[str]]:
    """Build the core for `interpreters`, and `plugins` (None: all); return the files in dist/ and skipped Pythons."""
    plugins = plugin_wheels.folders() if plugins is None else plugins
    with exclusive("dist"):
        return _build(interpreters, architectures, plugins, with_sdists=with_sdists)


def _build(
    interpreters: Sequence[Interpreter], architectures: Sequence[str], plugins: Sequence[Path], *, with_sdists: bool
) -> tuple[list[Path], list[str]]:
    preflight.require_room(CACHE, room_needed(len(interpreters), architectures))
    buildable, skipped = with_headers(interpreters)
    if skipped and not buildable:
        raise headers.NoHeaders("\n".join(["hami-core could be built for no Python:", *skipped]))
    jobs = core_jobs(buildable, architectures)
    for plugin in plugins:
        for platform in plugin_wheels.platforms(plugin, architectures):
            if platform != plugin_wheels.PURE:
                zig.warm_up(zig.target(platform))
            if not plugin_wheels.finished(plugin, platform).is_dir():
                jobs[f"{plugin.name} {platform}"] = partial(plugin_wheels.build, plugin, platform)
    if with_sdists:
        for project in [*([ROOT] if interpreters else []), *plugins]:
            name = "hami-core" if project == ROOT else project.name
            jobs[f"{name} sdist"] = partial(sdists.build, project)
    if jobs:
        in_parallel("building", jobs)
    return collect(), skipped


def room_needed(pythons: int, architectures: Sequence[str]) -> int:
    """Return the megabytes needed. Measured: 60 for the libraries of a target, 12 for a static core, 14 per Python."""
    cold = [architecture for architecture in architectures if not zig.is_warm(zig.target(architecture))]
    return 50 + 100 * len(cold) + (20 * pythons + 20) * len(architectures)


def with_headers(interpreters: Sequence[Interpreter]) -> tuple[list[Interpreter], list[str]]:
    """Return the interpreters with headers, and for each of the others the reason why nothing can be built for it."""
    buildable, skipped = [], []
    for interpreter in interpreters:
        try:
            headers.include_folder(interpreter)
            buildable.append(interpreter)
        except headers.NoHeaders as reason:
            skipped.append(str(reason))
    return buildable, skipped


def core_jobs(interpreters: Sequence[Interpreter], architectures: Sequence[str]) -> Jobs:
    """Return a job for each missing wheel of the core; the static core of their architecture is built here."""
    jobs: Jobs = {}
    for architecture in architectures:
        missing = [i for i in interpreters if not core_wheel.finished(i, architecture).is_dir()]
        if missing:
            core = core_wheel.static_core(architecture)
            jobs |= {f"{i.tag} {architecture}": partial(core_wheel.build, i, architecture, core) for i in missing}
    return jobs


def current() -> list[Path]:
    """Return every finished file of the current sources, including those of earlier runs for other Pythons."""
    plugins = plugin_wheels.folders()
    folders = [core_wheel.WHEELS / f"hami_core-{core_wheel.key()}"]
    folders += [
        plugin_wheels.finished(plugin, platform)
        for plugin in plugins
        for platform in plugin_wheels.platforms(plugin, list(zig.ARCHITECTURES))
    ]
    folders += [sdists.finished(project) for project in (ROOT, *plugins)]
    return sorted(file for folder in folders for kind in ("*.whl", "*.tar.gz") for file in folder.rglob(kind))


def collect() -> list[Path]:
    """Make dist/ contain exactly the current files, and remove outdated files from the cache."""
    files = current()
    for folder in [*core_wheel.WHEELS.glob("*"), *sdists.SDISTS.glob("*")]:
        if not any(file.is_relative_to(folder) for file in files):
            shutil.rmtree(folder)
    DIST.mkdir(exist_ok=True)
    for old in archives():
        if old.name not in {file.name for file in files}:
            old.unlink()
    return [publish(file) for file in files]


def publish(file: Path) -> Path:
    """Copy `file` into dist/ in one step, unless it is there: other processes may be installing from dist/."""
    target = DIST / file.name
    same = target.is_file() and target.stat().st_mtime_ns == file.stat().st_mtime_ns
    if not same or target.stat().st_size != file.stat().st_size:
        work = DIST / f".{file.name}.work"
        shutil.copy2(file, work)
        os.replace(work, target)
    return target


def what_to_do(files: Sequence[Path]) -> str:
    """Return how to install from dist/, or how to build the core if dist/ has none, as after a run for one plugin."""
    if any(file.name.startswith("hami_core-") and file.suffix == ".whl" for file in files):
        return f"pip install --find-links {DIST} hami-core"
    return f"{DIST.name}/ has no hami-core of these sources: ci/wheels --python current builds it"


def archives() -> list[Path]:
    """Return the wheels and source distributions in dist/."""
    return sorted([*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")])


def findings(files: list[Path]) -> list[Finding]:
    """Return every finding of the audit about `files`."""
    with step(f"auditing {len(files)} files"):
        return audit.audit_all(files)


def audited(files: list[Path]) -> list[Finding]:
    """Return the findings about `files`; raises Failure if a check failed."""
    found = findings(files)
    wrong = [str(finding) for finding in found if not finding.passed]
    if wrong:
        raise Failure("\n".join(wrong))
    return found
