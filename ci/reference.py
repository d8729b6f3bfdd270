"""Writes the generated parts of the reference: the backends of the core, and the quotes of hami/abi.h.

    python ci/reference.py            with a Python that has this tree's hami-core
    python ci/reference.py --check    change nothing; fail if a page is stale

A generated part is between `<!-- registry NAME -->` or `<!-- abi.h NAME -->` and `<!-- end -->`; the rest of a page is
written by hand. A registry part contains the `doc` of a backend class and the declarations of its parameters. An abi.h
part contains one section of the header. A new backend or section needs these two lines at its place in the page, and a
backend also needs an example below them.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import hami
from hami._plugins.records import BackendInfo

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "hami-core" / "docs" / "reference"
HEADER = ROOT / "hami-core" / "include" / "hami" / "abi.h"
PART = re.compile(r"<!-- (?:registry|abi\.h) (.+?) -->\n.*?<!-- end -->\n", re.DOTALL)
SECTION = re.compile(r"^/\* ---- (.+?) -+ \*/\n+|^  (?=/\* -- since [\d.]+: ([a-z' ]+))", re.MULTILINE)


def core_backends() -> dict[str, BackendInfo]:
    return {name: info for name, info in hami.backends().items() if info.owner == "hami-core"}


def render(info: BackendInfo) -> str:
    written = " or ".join(f"`{name}{info.brackets}`" for name in (info.name, *(info.aliases or [])))
    marks = {"non-blocking": info.non_blocking, "lightweight": info.lightweight}
    traits = ", ".join([f"`{info.thread}`", *(mark for mark, holds in marks.items() if holds)])
    lines = [f"### {info.name}", "", f"{written} · thread {traits} · range: {info.range or 'any'}"]
    lines += ["", info.doc or "", ""]
    if info.params:
        lines += ["| parameter | meaning |", "|---|---|"]
        lines += [f"| `{param['text']}` | {param['help']} |" for param in info.params]
        lines += [""]
    return "\n".join([f"<!-- registry {info.name} -->", *lines, "<!-- end -->", ""])


def backend_parts() -> dict[str, str]:
    return {name: render(info) for name, info in core_backends().items()}


def header_parts() -> dict[str, str]:
    """Return the sections of the header and the groups of functions in the host table, by name."""
    declared, _, _ = HEADER.read_text("utf-8").rpartition("\n#ifdef __cplusplus\n}")
    _, *pieces = SECTION.split(declared)
    parts = {}
    for section, group, text in zip(pieces[0::3], pieces[1::3], pieces[2::3], strict=True):
        name = section or group.strip()
        code = text.rstrip() if section else f"  {text.rstrip()}"
        parts[name] = f"<!-- abi.h {name} -->\n```c\n{code}\n```\n<!-- end -->\n"
    return parts


PAGES = {REFERENCE / "backends.md": backend_parts, REFERENCE / "plugin-abi.md": header_parts}


def regenerated(page: Path, parts: dict[str, str]) -> str:
    """Return the page with current parts. Exit with a message if a part is missing, unknown or duplicated."""
    text, shown = page.read_text("utf-8"), page.relative_to(ROOT)
    found = PART.findall(text)
    for name in parts.keys() - set(found):
        marker = parts[name].splitlines()[0]
        raise SystemExit(f"{shown} has no part for {name}; add the lines {marker} and <!-- end -->")
    for name in found:
        if name not in parts or found.count(name) > 1:
            reason = "occurs twice" if name in parts else "does not exist in the code"
            raise SystemExit(f"{shown}: the part {name} {reason}; remove it")
    return PART.sub(lambda part: parts[part[1]], text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a page is stale")
    arguments = parser.parse_args()
    stale = []
    for page, parts in PAGES.items():
        text = regenerated(page, parts())
        if text == page.read_text("utf-8"):
            continue
        if arguments.check:
            stale.append(f"{page.relative_to(ROOT)} is stale: run python ci/reference.py")
        else:
            page.write_text(text, "utf-8")
    print("\n".join(stale), end="\n" if stale else "", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
