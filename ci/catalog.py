"""Write a catalogue of plugins.

    ci/catalog.py                             hami/_plugins/catalog.json, the snapshot in the core, from hami-plugins/
    ci/catalog.py --wheels FOLDER --to FILE   from wheels, with their versions, platforms and hashes

Requires only Python 3.11 or newer, or tomli.
"""

from __future__ import annotations

import argparse
import ast
import configparser
import hashlib
import json
import re
import sys
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "hami-core" / "python" / "hami" / "_plugins" / "catalog.json"
FORMAT = 1

# Plugins with a decided name that are not in hami-plugins/ yet: the names of their backends. Remove an entry when its
# folder is added.
PLANNED: dict[str, list[str]] = {}
OWNED = ("backends", "pipelines")  # each name belongs to one plugin, or to one that replaces another


def collect(plugins: Path, planned: dict[str, list[str]] | None = None) -> dict[str, Any]:
    """Return the catalogue of the plugins in a folder."""
    entries = []
    replaced: dict[str, set[str]] = {}
    for file in sorted(plugins.glob("*/pyproject.toml")):
        project = tomllib.loads(file.read_text("utf-8"))["project"]
        if project["name"] in PLANNED:
            raise SystemExit(f"{file} exists: remove {project['name']} from PLANNED in ci/catalog.py")
        entries.append(entry(project, file.parent))
        replaced[project["name"]] = set(project.get("entry-points", {}).get("hami.replaces", {}))
    for name, backends in (PLANNED if planned is None else planned).items():
        entries.append({"name": name, "backends": {backend: {} for backend in backends}})
    owners: dict[tuple[str, str], str] = {}
    for each in entries:
        for kind in OWNED:
            for key in each.get(kind, ()):
                owner, name = owners.setdefault((kind, key), each["name"]), each["name"]
                if owner != name and name not in replaced.get(owner, ()) and owner not in replaced.get(name, ()):
                    raise SystemExit(f"{each['name']}: {key} is a name of {owner} already")
    return {"format": FORMAT, "plugins": sorted(entries, key=lambda each: str(each["name"]))}


def entry(project: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return what the catalogue says about one plugin."""
    groups = project.get("entry-points", {})
    docs = summaries(folder)
    backends = sorted(groups.get("hami.backends", {}))
    native = (folder / "CMakeLists.txt").is_file()
    return {
        "name": project["name"],
        "summary": project.get("description", ""),
        "backends": {name: {"summary": docs[name]} if name in docs else {} for name in backends},
        "pipelines": sorted(groups.get("hami.pipelines", {})),
        "devices": sorted(groups.get("hami.devices", {})),
        "requires": project.get("dependencies", []),
        "platforms": ["manylinux_2_17_x86_64", "manylinux_2_17_aarch64"] if native else ["any"],
    }


def summaries(folder: Path) -> dict[str, str]:
    """Return the first sentence of the docstring of every class in the Python sources of a plugin."""
    found = {}
    for file in sorted((folder / "python").rglob("*.py")):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and (doc := ast.get_docstring(node)):
                found[node.name] = doc.partition("\n")[0]
    return found


def collect_wheels(wheels: Iterable[Path]) -> dict[str, Any]:
    """Return the catalogue of the plugins among some wheels; each is described by its newest version."""
    by_name: dict[str, dict[str, list[Path]]] = {}
    for wheel in sorted(wheels):
        name, version, *_ = wheel.name.split("-")
        by_name.setdefault(re.sub(r"[-_.]+", "-", name).lower(), {}).setdefault(version, []).append(wheel)
    entries = []
    for name, releases in sorted(by_name.items()):
        newest = max(releases, key=version_key)
        described = wheel_entry(name, newest, releases[newest])
        if any(described[kind] for kind in OWNED):
            described["releases"] = [
                release(version, releases[version]) for version in sorted(releases, key=version_key)
            ]
            entries.append(described)
    return {"format": FORMAT, "plugins": entries}


def wheel_entry(name: str, version: str, wheels: list[Path]) -> dict[str, Any]:
    """Return what the metadata of a version say."""
    metadata, entry_points = Message(), configparser.ConfigParser(delimiters=("=",), interpolation=None)
    entry_points.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        with zipfile.ZipFile(wheels[0]) as archive:
            for path in archive.namelist():
                if path.endswith(".dist-info/METADATA"):
                    metadata = Parser().parsestr(archive.read(path).decode())
                elif path.endswith(".dist-info/entry_points.txt"):
                    entry_points.read_string(archive.read(path).decode())
    except (ValueError, zipfile.BadZipFile, configparser.Error) as error:
        raise SystemExit(f"{wheels[0]} is not a complete wheel ({error}): build or download it again") from error
    groups = {section: dict(entry_points[section]) for section in entry_points.sections()}
    return {
        "name": name,
        "summary": metadata.get("Summary", ""),
        "version": version,
        "backends": {backend: {} for backend in sorted(groups.get("hami.backends", {}))},
        "pipelines": sorted(groups.get("hami.pipelines", {})),
        "devices": sorted(groups.get("hami.devices", {})),
        "requires": [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text],
        "platforms": sorted({tag for wheel in wheels for tag in wheel.stem.split("-")[-1].split(".")}),
    }


def release(version: str, wheels: list[Path]) -> dict[str, Any]:
    """Return the files of one version with their hashes."""
    files = [{"name": wheel.name, "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()} for wheel in wheels]
    return {"version": version, "files": files}


def version_key(version: str) -> tuple[list[int], bool]:
    """Return a sort key: 1.9 < 1.10rc1 < 1.10."""
    numbers = re.match(r"[\d.]*", version)
    parts = [int(part) for part in (numbers[0] if numbers else "").split(".") if part]
    return parts, re.search(r"[a-z]", version) is None


def render(catalog: dict[str, Any]) -> str:
    """Return the catalogue as JSON, with one line for each value so that changes are readable."""
    return json.dumps(catalog, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the file is stale")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="describe the plugins of these wheels instead")
    parser.add_argument("--to", type=Path, metavar="FILE", help="where to write the catalogue of the wheels")
    arguments = parser.parse_args()
    if arguments.wheels or arguments.to:
        if not (arguments.wheels and arguments.to):
            parser.error("--wheels and --to are given together")
        arguments.to.write_text(render(collect_wheels(arguments.wheels.glob("*.whl"))), "utf-8")
        return 0
    text = render(collect(ROOT / "hami-plugins"))
    if arguments.check:
        if not TARGET.is_file() or TARGET.read_text("utf-8") != text:
            print(f"{TARGET.relative_to(ROOT)} is stale: run python ci/catalog.py", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
