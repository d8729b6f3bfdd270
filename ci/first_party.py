"""Writes hami/_plugins/first_party.py: which of our plugins has which backend and pipeline, and serves which device."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "hami-core" / "python" / "hami" / "_plugins" / "first_party.py"

# Plugins with a decided name that are not in hami-plugins/ yet. Remove an entry when its folder is added.
PLANNED: dict[str, list[str]] = {}


Table = dict[str, str]  # name -> distribution


def collect(plugins: Path) -> tuple[Table, Table, Table, list[str]]:
    """Return backends, pipelines and devices, each name -> distribution, and all distributions."""
    backends: Table = {}
    pipelines: Table = {}
    devices: Table = {}
    distributions = set()
    for file in sorted(plugins.glob("*/pyproject.toml")):
        project = tomllib.loads(file.read_text("utf-8"))["project"]
        name = project["name"]
        distributions.add(name)
        if name in PLANNED:
            raise SystemExit(f"{file} exists: remove {name} from PLANNED in ci/first_party.py")
        entry_points = project.get("entry-points", {})
        tables = {"hami.backends": backends, "hami.pipelines": pipelines, "hami.devices": devices}
        for group, table in tables.items():
            for key in entry_points.get(group, {}):
                if table.setdefault(key, name) != name:
                    raise SystemExit(f"{file}: {key} is a name of {table[key]} already")
    for name, planned in PLANNED.items():
        distributions.add(name)
        for key in planned:
            if backends.setdefault(key, name) != name:
                raise SystemExit(f"ci/first_party.py: {key} of {name} is a name of {backends[key]} already")
    return backends, pipelines, devices, sorted(distributions)


def render(backends: Table, pipelines: Table, devices: Table, distributions: list[str]) -> str:
    def table(name: str, entries: Table) -> list[str]:
        lines = [f'    "{key}": "{entries[key]}",' for key in sorted(entries)]
        return [f"{name}: dict[str, str] = {{", *lines, "}"] if lines else [f"{name}: dict[str, str] = {{}}"]

    return "\n".join(
        [
            '"""Which first-party plugin has which name, so that a message can say what to install. Do not edit.',
            "",
            "Written by `python ci/first_party.py` from hami-plugins/*/pyproject.toml.",
            '"""',
            "",
            *table("BACKENDS", backends),
            *table("PIPELINES", pipelines),
            *table("DEVICES", devices),
            "DISTRIBUTIONS: frozenset[str] = frozenset(",
            "    {",
            *(f'        "{name}",' for name in distributions),
            "    }",
            ")",
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the file is stale")
    arguments = parser.parse_args()
    text = render(*collect(ROOT / "hami-plugins"))
    if arguments.check:
        if TARGET.read_text("utf-8") != text:
            print(f"{TARGET.relative_to(ROOT)} is stale: run python ci/first_party.py", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
