"""Writes the tables of howto/from-torchpipe.md: every backend of torchpipe and omniback, and every key that differs.

    python ci/from_torchpipe.py WHEEL…     with the wheels of torchpipe and omniback, and that of apache-tvm-ffi, which
                                           omniback needs, unless it is installed; reads their names again
    python ci/from_torchpipe.py --v0 DIR   with the sources of the v0 line; reads their names again
    python ci/from_torchpipe.py            keeps the names of the page
    python ci/from_torchpipe.py --check    changes nothing; fails if a table is stale

Run it with a Python that has this tree's hami-core and hami-torchpipe. It needs no network: backends of torchpipe are
read from the sources in its wheel, those of omniback from its library, which lists them. A name without an equivalent
must be in hami_torchpipe/replacements.py.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import hami
from hami._plugins import catalog
from hami_torchpipe import replacements

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "hami-core" / "docs" / "howto" / "from-torchpipe.md"
PART = re.compile(r"(<!-- torchpipe (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
NAME = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)

_REGISTERED = re.compile(r'^OMNI_REGISTER(?:_BACKEND)?\((?:(?:om::)?Backend, )?(\w+)(?:, "([^"]*)")?\)', re.MULTILINE)
_GENERATED = re.compile(r"^OMNI_GENERATE_BACKEND\((\w+),", re.MULTILINE)
_IN_PYTHON = re.compile(r'^register_backend\(\s*"(\w+)"', re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_V0 = re.compile(r'IPIPE_REGISTER\(\s*[\w:<>]+\s*,\s*(\w+)\s*(?:,\s*"([^"]*)")?\s*\)')
_LIST = "import omniback; print('names:', *omniback.ffi.list_backends())"


def names_in_sources(wheel: Path) -> set[str]:
    """Return the names that the C++ and Python sources in a wheel register."""
    names: set[str] = set()
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if not member.endswith((".cpp", ".py")):
                continue
            text = archive.read(member).decode("utf-8", "replace")
            for cls, others in _REGISTERED.findall(text):
                names |= {cls, *(other.strip() for other in others.split(",") if other)}
            names |= {*_GENERATED.findall(text), *_IN_PYTHON.findall(text)}
    return names


def names_in_v0(folder: Path) -> set[str]:
    """Return the names of backends, filters, pre- and postprocessors that the C++ sources of the v0 line register."""
    names: set[str] = set()
    for file in folder.rglob("*.[ch]pp"):
        for cls, others in _V0.findall(_COMMENT.sub("", file.read_text("utf-8", "replace"))):
            names |= {other.strip() for other in others.split(",")} if others else {cls}
    return names


def names_in_library(wheels: list[Path]) -> set[str]:
    """Return the names that omniback lists, in a process that sees only the extracted wheels first."""
    with tempfile.TemporaryDirectory() as folder:
        for wheel in wheels:
            if not wheel.name.startswith("torchpipe-"):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(folder)
        environment = {**os.environ, "PYTHONPATH": folder}
        done = subprocess.run([sys.executable, "-c", _LIST], env=environment, text=True, capture_output=True)
    found = re.search(r"^names: (.*)$", done.stdout, re.MULTILINE)
    if not found:
        raise SystemExit(f"omniback cannot be imported; give the wheel of apache-tvm-ffi too:\n{done.stderr}")
    return set(found[1].split())


def backends_here() -> dict[str, str]:
    """Return every name of HAMi and its plugins, with what a page shows for it."""
    here = {name: f"`{name}` ({owner})" for name, (owner, *_) in catalog.first_party().owners("backends").items()}
    for info in hami.backends().values():
        if info.owner == "hami-core":
            here |= dict.fromkeys((info.name, *(info.aliases or [])), f"`{info.name}`")
    return here


def backend_rows(names: set[str], line: str) -> list[str]:
    here = backends_here()
    both = sorted(here.keys() & replacements.BACKENDS.keys())
    if both:
        raise SystemExit(f"hami_torchpipe/replacements.py: HAMi has {', '.join(both)}; remove the entries")
    missing = sorted(names - here.keys() - replacements.BACKENDS.keys())
    if missing:
        raise SystemExit(f"hami_torchpipe/replacements.py says nothing about {', '.join(missing)}")
    in_order = sorted(names, key=lambda name: (name.lower(), name))
    rows = [f"| `{name}` | {here.get(name) or replacements.BACKENDS[name]} |" for name in in_order]
    present = len(names & here.keys())
    not_planned = sum(text.startswith("not planned") for name, text in replacements.BACKENDS.items() if name in names)
    other = len(names) - present - not_planned
    head = f"{len(names)} names: {present} exist, {other} have an alternative, {not_planned} are not planned."
    return [head, "", f"| {line} | HAMi |", "|---|---|", *rows]


def key_rows() -> list[str]:
    rows = [f"| `{key}` | {text} |" for key, text in sorted(replacements.KEYS.items())]
    return ["| key of torchpipe | in HAMi |", "|---|---|", *rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", nargs="*", type=Path, metavar="WHEEL")
    parser.add_argument("--v0", type=Path, metavar="DIR", help="the folder torchpipe/csrc of the v0 line")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a table is stale")
    arguments = parser.parse_args()
    page = PAGE.read_text("utf-8")
    of_page = {part[2]: set(NAME.findall(part[0])) for part in PART.finditer(page)}
    names = of_page["backends"]
    if arguments.wheels:
        sources = [wheel for wheel in arguments.wheels if wheel.name.startswith("torchpipe-")]
        names = names_in_library(arguments.wheels).union(*map(names_in_sources, sources))
    v0 = names_in_v0(arguments.v0) if arguments.v0 else of_page["v0"]
    tables = {
        "backends": backend_rows(names, "torchpipe 0.2, omniback"),
        "v0": backend_rows(v0 - names, "torchpipe v0"),
        "keys": key_rows(),
    }
    written = PART.sub(lambda part: part[1] + "\n".join(tables[part[2]]) + "\n" + part[3], page)
    if arguments.check:
        if written != page:
            print(f"{PAGE.relative_to(ROOT)} is stale: run python ci/from_torchpipe.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(written, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
