"""Writes the compatibility table, hami-core/docs/reference/compatibility.md.

python ci/compatibility.py
python ci/compatibility.py --check    change nothing; fail if the page is stale
"""

from __future__ import annotations

import argparse
import sys

from _lib import releases
from _lib.paths import ROOT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is stale")
    target, text = ROOT / releases.PAGE, releases.page(ROOT)
    if not parser.parse_args().check:
        target.write_text(text, "utf-8")
    elif not target.is_file() or target.read_text("utf-8") != text:
        print(f"{releases.PAGE} is stale: run python ci/compatibility.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
