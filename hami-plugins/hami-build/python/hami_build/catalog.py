"""Writes a catalogue of plugins from their wheels: JSON for hami-core, and a page for readers."""

from __future__ import annotations

import html
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from hami_build import binary, grades, integrity, wheel_file
from hami_build.errors import Failure
from hami_build.index import read
from hami_build.unpacked import Skipped, Wheel, Wrong, unpack

FORMAT = 1
OWNED = ("backends", "pipelines", "devices")
JSON = "catalog.json"
PAGE = "index.html"


def collect(wheels: Iterable[Path], *, with_grades: bool = False) -> dict[str, Any]:
    """Return the catalogue of the plugins among some wheels; each is described by its newest version.

    Parameters, summaries and the plugin ABI come from the code of a wheel for this machine, which runs in a child
    process; without one, or if it fails, they are left out.

    Raises:
        Failure: A file is not a complete wheel.
    """
    by_name: dict[str, dict[Version, list[Path]]] = {}
    for wheel in sorted(wheels):
        try:
            name, version, _, _ = parse_wheel_filename(wheel.name)
        except InvalidWheelFilename as error:
            raise Failure(f"{wheel}: {error}; build or download it again") from error
        by_name.setdefault(name, {}).setdefault(version, []).append(wheel)
    entries = []
    for releases in by_name.values():
        newest = max(releases)
        described = entry(str(newest), releases[newest], with_grades=with_grades)
        if any(described[kind] for kind in OWNED):
            described["releases"] = [release(str(version), releases[version]) for version in sorted(releases)]
            entries.append(described)
    return {"format": FORMAT, "plugins": sorted(entries, key=lambda each: str(each["name"]))}


def entry(version: str, wheels: Sequence[Path], *, with_grades: bool) -> dict[str, Any]:
    """Return what the wheels of one version say."""
    for wheel in wheels:
        _, complete, detail = integrity.check(wheel)
        if not complete:
            raise Failure(f"{wheel} is not a complete wheel: {detail}; build or download it again")
    with tempfile.TemporaryDirectory() as folder:
        opened = [unpack(wheel, Path(folder, str(number))) for number, wheel in enumerate(wheels)]
        chosen = next((wheel for wheel in opened if wheel.runs_here), opened[0])
        metadata, known = wheel_file.metadata(chosen.files), code(chosen)
        found: dict[str, Any] = {
            "name": canonicalize_name(chosen.name),
            "summary": metadata.get("Summary", ""),
            "version": version,
            "backends": {name: known.get(name, {}) for name in sorted(chosen.backends)},
            "pipelines": sorted(chosen.entry_points.get("hami.pipelines", {})),
            "devices": sorted(chosen.entry_points.get("hami.devices", {})),
            "models": sorted(chosen.entry_points.get("hami.models", {})),
            "requires": [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text],
            "platforms": sorted({tag for wheel in opened for tag in wheel.platforms}),
        }
        if versions := abi(chosen):
            found["abi"] = versions
    if with_grades:
        found["grade"] = min((grades.grade(wheel).grade for wheel in wheels), key=grades.GRADES.index)
    return found


def code(wheel: Wheel) -> dict[str, dict[str, Any]]:
    """Return summary and parameters of each backend, if the code of the wheel can run here."""
    try:
        found: dict[str, dict[str, Any]] = wheel.run("registered", wheel.name)["backends"]
    except (Skipped, Wrong):
        return {}
    return found


def abi(wheel: Wheel) -> dict[str, str]:
    """Return the oldest plugin ABI that a native plugin runs with, and the one it was built with."""
    libraries = [wheel.folder / each.name for each in wheel.binaries if binary.ENTRY in each.symbols.exported]
    try:
        built = wheel.run("abi", list(map(str, libraries))) if libraries else {}
    except (Skipped, Wrong):
        return {}
    if not built or not all(built.values()):
        return {}
    major, minor, least = max(built.values())
    return {"min": f"{major}.{least}", "built": f"{major}.{minor}"}


def release(version: str, wheels: Sequence[Path]) -> dict[str, Any]:
    """Return the files of one version with their hashes, and the names of their provenance objects."""
    archives = list(map(read, wheels))
    files = [
        {
            "name": each.path.name,
            "sha256": each.sha256,
            **({"provenance": each.provenance.name} if each.provenance else {}),
        }
        for each in archives
    ]
    return {"version": version, "files": files}


def write(catalog: Mapping[str, Any], folder: Path, wheels: Iterable[Path] = ()) -> list[Path]:
    """Write the catalogue, the page, and the provenance objects beside the wheels into a folder; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / JSON, folder / PAGE]
    for each in map(read, wheels):
        if each.provenance:
            files.append(Path(shutil.copy2(each.provenance, folder)))
    files[0].write_text(json.dumps(catalog, indent=1, ensure_ascii=False) + "\n", "utf-8")
    files[1].write_text(page(catalog), "utf-8")
    return files


def page(catalog: Mapping[str, Any]) -> str:
    """Return the page: a section for each plugin, without scripts."""
    style = "body{font:16px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}td{padding:.1em 1em .1em 0}"
    sections = "".join(map(section, catalog["plugins"]))
    head = f'<meta charset="utf-8"><title>HAMi plugins</title><style>{style}</style>'
    body = f"<h1>HAMi plugins</h1>\n{sections}"
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>\n{body}</body></html>\n'


def section(plugin: Mapping[str, Any]) -> str:
    """Return the section of one plugin."""
    abi = plugin.get("abi", {})
    facts = {
        "version": plugin["version"],
        "grade": plugin.get("grade", ""),
        "install": f"hami install {plugin['name']}",
        "platforms": ", ".join(plugin["platforms"]),
        "plugin ABI": f"{abi['min']} or newer, built with {abi['built']}" if abi else "",
        "requires": ", ".join(plugin["requires"]),
        "pipelines": ", ".join(plugin["pipelines"]),
    }
    for name, about in plugin["backends"].items():
        params = ", ".join(each["text"] for each in about.get("params", ()))
        facts[name] = f"{about.get('summary', '')} {f'({params})' if params else ''}".strip()
    for each in plugin["releases"]:
        facts[f"release {each['version']}"] = ", ".join(
            f"{file['name']} sha256 {file['sha256']}" for file in each["files"]
        )
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(text)}</td></tr>\n" for name, text in facts.items() if text
    )
    name = html.escape(plugin["name"])
    heading = f'<h2 id="{name}">{name}</h2>'
    return f"{heading}\n<p>{html.escape(plugin['summary'])}</p>\n<table>\n{rows}</table>\n"
