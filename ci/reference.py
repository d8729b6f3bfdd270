"""Writes what the registry knows of each core backend into the reference, hami-core/docs/reference/backends.md.

    python ci/reference.py            with a Python that has this tree's hami-core
    python ci/reference.py --check    change nothing; fail if the page is stale

The page is written by hand but for the parts between `<!-- registry NAME -->` and `<!-- end -->`: those come from the
class, so what is to be said of a backend is said in its `doc`, and of a parameter in its declaration. A new backend
needs these two lines where it belongs, and an example below them.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import hami
from hami._plugins import BackendInfo

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "hami-core" / "docs" / "reference" / "backends.md"
PART = re.compile(r"<!-- registry (\w+) -->\n.*?<!-- end -->\n", re.DOTALL)


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


def renewed(page: str, backends: dict[str, BackendInfo]) -> str:
    """Return the page with every part as the registry has it now; exit with what to do if one is missing."""
    found = PART.findall(page)
    for name in backends.keys() - set(found):
        lines = f"<!-- registry {name} --> and <!-- end -->"
        raise SystemExit(f"{PAGE.relative_to(ROOT)} lacks {name}: write {lines} where it belongs, and an example below")
    for name in found:
        if name not in backends or found.count(name) > 1:
            what = "stands there twice" if name in backends else "is no backend of the core"
            raise SystemExit(f"{PAGE.relative_to(ROOT)}: {name} {what}; take its part away")
    return PART.sub(lambda part: render(backends[part[1]]), page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is stale")
    arguments = parser.parse_args()
    page = PAGE.read_text("utf-8")
    text = renewed(page, core_backends())
    if not arguments.check:
        PAGE.write_text(text, "utf-8")
    elif page != text:
        print(f"{PAGE.relative_to(ROOT)} is stale: run python ci/reference.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
