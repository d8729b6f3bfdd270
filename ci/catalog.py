"""Write hami/_plugins/catalog.json, the snapshot of the catalogue in the core, from hami-plugins/.

`hami-build catalog` writes a catalogue from wheels, with their versions, parameters, platforms and hashes.

Requires only Python 3.11 or newer, or tomli.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
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
OWNED = ("backends", "pipelines")  # each name belongs to one plugin


def collect(plugins: Path, planned: dict[str, list[str]] | None = None) -> dict[str, Any]:
    """Return the catalogue of the plugins in a folder."""
    entries = []
    for file in sorted(plugins.glob("*/pyproject.toml")):
        project = tomllib.loads(file.read_text("utf-8"))["project"]
        if project["name"] in PLANNED:
            raise SystemExit(f"{file} exists: remove {project['name']} from PLANNED in ci/catalog.py")
        entries.append(entry(project, file.parent))
    for name, backends in (PLANNED if planned is None else planned).items():
        entries.append({"name": name, "backends": {backend: {} for backend in backends}})
    owners: dict[tuple[str, str], str] = {}
    for each in entries:
        for kind in OWNED:
            for key in each.get(kind, ()):
                owner, name = owners.setdefault((kind, key), each["name"]), each["name"]
                if owner != name:
                    raise SystemExit(f"{name}: {key} is a name of {owner} already")
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
        "models": sorted(groups.get("hami.models", {})),
        "commands": commands(folder),
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


def commands(folder: Path) -> list[str]:
    """Return the commands that the Python sources of a plugin add to `hami`."""
    names = [
        declared_command(node)
        for file in (folder / "python").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call)
    ]
    return sorted({name for name in names if name})


def declared_command(call: ast.Call) -> str:
    """Return the name in `commands.add_parser(name, …)` or `add_command(commands, name, …)`; empty for other calls."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "add_parser":
        given = call.args[:1]
    elif isinstance(call.func, ast.Name) and call.func.id == "add_command":
        given = call.args[1:2]
    else:
        return ""
    return given[0].value if given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, str) else ""


def render(catalog: dict[str, Any]) -> str:
    """Return the catalogue as JSON, with one line for each value so that changes are readable."""
    return json.dumps(catalog, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the file is stale")
    arguments = parser.parse_args()
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
