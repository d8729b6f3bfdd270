"""Runs plugins with several versions of hami-core, and writes the results as a table."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from hami_build import checks, cores
from hami_build.errors import Failure
from hami_build.unpacked import Run, Skipped, Wheel, Wrong, unpack


@dataclass
class Row:
    """What one plugin does with each version of hami-core."""

    plugin: str
    version: Version
    abi: str  # of a native plugin: the versions that it needs at least, and was built with
    results: dict[Version, str] = field(default_factory=dict)  # "ok: …", "-: …" if it does not apply, or the error

    def as_json(self) -> dict[str, Any]:
        """Return the row as values for JSON."""
        results = {str(core): text for core, text in self.results.items()}
        return {"plugin": self.plugin, "version": str(self.version), "abi": self.abi, "results": results}


def measure(wheels: Iterable[Path], places: Sequence[str] = ()) -> list[Row]:
    """Run each plugin with the installed hami-core and with those in `places`, and return a row for each.

    A plugin must register its backends, and those with a sample in its quality.toml must pass the conformance suite.
    Wheels for another machine are left out. Of a folder or an index in `places`, only the oldest and the newest core
    are used.

    Raises:
        Failure: A file is not a wheel, or a place has no hami-core.
    """
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        others = cores.find(places, SpecifierSet(), Path(folder))
        for number, path in enumerate(sorted(wheels)):
            if not path.is_file() or path.suffix != ".whl":
                raise Failure(f"{path} is not a wheel")
            wheel = unpack(path, Path(folder, str(number)))
            if wheel.runs_here:
                rows.append(row(wheel, others))
    return sorted(rows, key=lambda each: (each.plugin, each.version))


def row(wheel: Wheel, others: Iterable[cores.Core]) -> Row:
    """Return the row of one plugin."""
    try:
        abi = checks.plugin_abi(wheel)
    except Skipped:
        abi = "-"
    found = Row(wheel.name, cores.version_of(wheel.path), abi)
    wanted = checks.core_requirement(wheel).specifier
    runs: dict[Version, Run] = {each.version: partial(wheel.run, first=each.folder) for each in others}
    for core, run in {Version(version(cores.NAME)): wheel.run, **runs}.items():
        found.results[core] = result(wheel, run) if core in wanted else f"-: requires {cores.NAME}{wanted}"
    return found


def result(wheel: Wheel, run: Run) -> str:
    """Return what the plugin does with one core."""
    try:
        backends, passed = checks.registered(wheel, run), checks.conforming(wheel, run)
    except Wrong as error:
        return str(error)
    counted = f"{len(backends)} backend{'' if len(backends) == 1 else 's'}"
    return f"ok: {counted}, {len(passed)} checked" if passed else f"ok: {counted}"


def markdown(rows: Sequence[Row]) -> str:
    """Return the rows as a table with a column for each core."""
    versions = sorted({core for each in rows for core in each.results})
    heads = ["plugin", "version", "plugin ABI", *(f"{cores.NAME} {core}" for core in versions)]
    lines = [heads, ["---"] * len(heads)]
    for each in rows:
        results = [each.results.get(core, "-").replace("|", "/") for core in versions]
        lines.append([f"`{each.plugin}`", str(each.version), each.abi, *results])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def failures(rows: Iterable[Row]) -> list[str]:
    """Return the results that are errors, each with its plugin and core."""
    return [
        f"{each.plugin} {each.version} with {cores.NAME} {core}: {text}"
        for each in rows
        for core, text in each.results.items()
        if not text.startswith(("ok: ", "-: "))
    ]
