"""Writes the tables of reference/row-independence.md: how each operator of ONNX treats the batch axis.

    python ci/row_independence.py            with a Python that has this tree's hami-model-check
    python ci/row_independence.py --check    change nothing; fail if the page is stale

The tables are between `<!-- operators NAME -->` and `<!-- end -->`, and are made of the declarations in
hami_model_check/_rows/operators.py.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from hami_model_check._rows.operators import ENGINE_RULES, MICROSOFT, ML, NEWEST, OPERATORS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "hami-core" / "docs" / "reference" / "row-independence.md"
PART = re.compile(r"(<!-- operators (\S+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
DOMAINS = {"onnx": "", ML: ML, MICROSOFT: MICROSOFT}


def operators(domain: str) -> str:
    """Return the table of a domain: operators of one rule are one row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for (own, name), operator in OPERATORS.items():
        if own == domain:
            what = (operator.rule.__doc__ or "").strip().splitlines()[0].rstrip(".")
            rows.setdefault((what, operator.apart), []).append(f"`{name}`")
    lines = [f"Opsets 1 to {NEWEST[domain]}." if domain != MICROSOFT else "Opset 1.", ""]
    lines += ["| operators | what they do | rows stay apart if |", "|---|---|---|"]
    lines += [f"| {', '.join(sorted(names))} | {what} | {apart} |" for (what, apart), names in rows.items()]
    return "\n".join(lines) + "\n"


def engines() -> str:
    lines = ["| engine | operator | opsets | rows are mixed because it |", "|---|---|---|---|"]
    for (engine, name), rule in ENGINE_RULES.items():
        shown = f"`{name}`" + (f" with `{rule.attribute}`" if rule.attribute else "")
        lines.append(f"| {engine} | {shown} | {rule.first_opset} to {rule.last_opset} | {rule.why} |")
    return "\n".join(lines) + "\n"


def regenerated(text: str) -> str:
    parts = {name: operators(domain) for name, domain in DOMAINS.items()} | {"engines": engines()}
    found = [name for _, name, _ in PART.findall(text)]
    if sorted(found) != sorted(parts):
        raise SystemExit(f"{PAGE.relative_to(ROOT)} has the tables {found}, expected {sorted(parts)}")
    return PART.sub(lambda part: f"{part[1]}{parts[part[2]]}{part[3]}", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is stale")
    arguments = parser.parse_args()
    old = PAGE.read_text("utf-8")
    new = regenerated(old)
    if new == old:
        return 0
    if arguments.check:
        print(f"{PAGE.relative_to(ROOT)} is stale: run python ci/row_independence.py", file=sys.stderr)
        return 1
    PAGE.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
