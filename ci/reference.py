"""Writes what the code says of itself into the reference: the core's backends, and the contract with native plugins.

    python ci/reference.py            with a Python that has this tree's hami-core
    python ci/reference.py --check    change nothing; fail if a page is stale

The pages are written by hand but for the parts between `<!-- registry NAME -->` or `<!-- abi.h NAME -->` and
`<!-- end -->`. The first come from the class of a backend, so what is to be said of it is said in its `doc`, and of a
parameter in its declaration; the second are the sections of hami/abi.h. What is new there needs these two lines where
it belongs, and a backend an example below them.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import hami
from hami._plugins.manager import BackendInfo

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "hami-core" / "docs" / "reference"
HEADER = ROOT / "hami-core" / "include" / "hami" / "abi.h"
PART = re.compile(r"<!-- (?:registry|abi\.h) (.+?) -->\n.*?<!-- end -->\n", re.DOTALL)
SECTION = re.compile(r"^/\* ---- (.+?) -+ \*/\n+|^  (?=/\* -- since [\d.]+: ([a-z' ]+))", re.MULTILINE)


def core_backends() -> dict[str, BackendInfo]:
    return {name: info for name, info in hami.backends().items() if info.owner == "hami-core"}


def render(info: BackendInfo) -> str:
    written = " or ".join(f"`{name}{info.brackets}`" for name in (info.name, *(info.aliases or [])))
    lines = [f"### {info.name}", "", f"{written} · thread `{info.thread}`{', quick' if info.quick else ''}"]
    lines[-1] += f" · range: {info.range or 'any'}"
    lines += ["", info.doc or "", ""]
    if info.params:
        lines += ["| parameter | meaning |", "|---|---|"]
        lines += [f"| `{param['text']}` | {param['help']} |" for param in info.params]
        lines += [""]
    return "\n".join([f"<!-- registry {info.name} -->", *lines, "<!-- end -->", ""])


def backend_parts() -> dict[str, str]:
    return {name: render(info) for name, info in core_backends().items()}


def header_parts() -> dict[str, str]:
    """Return each section of the header by its name, and each group of functions in the core's table."""
    declared, _, _ = HEADER.read_text("utf-8").rpartition("\n#ifdef __cplusplus\n}")
    _, *pieces = SECTION.split(declared)
    parts = {}
    for section, group, text in zip(pieces[0::3], pieces[1::3], pieces[2::3], strict=True):
        name = section or group.strip()
        code = text.rstrip() if section else f"  {text.rstrip()}"
        parts[name] = f"<!-- abi.h {name} -->\n```c\n{code}\n```\n<!-- end -->\n"
    return parts


PAGES = {REFERENCE / "backends.md": backend_parts, REFERENCE / "native-contract.md": header_parts}


def renewed(page: Path, parts: dict[str, str]) -> str:
    """Return the page with every part as the code has it now; exit with what to do if one is missing."""
    text, shown = page.read_text("utf-8"), page.relative_to(ROOT)
    found = PART.findall(text)
    for name in parts.keys() - set(found):
        lines = f"{parts[name].splitlines()[0]} and <!-- end -->"
        raise SystemExit(f"{shown} lacks {name}: write {lines} where it belongs")
    for name in found:
        if name not in parts or found.count(name) > 1:
            what = "stands there twice" if name in parts else "is nothing that the code has"
            raise SystemExit(f"{shown}: {name} {what}; take its part away")
    return PART.sub(lambda part: parts[part[1]], text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a page is stale")
    arguments = parser.parse_args()
    stale = []
    for page, parts in PAGES.items():
        text = renewed(page, parts())
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
