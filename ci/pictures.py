#!/usr/bin/env python3
"""Writes the pictures in the documents, from the configurations and the benchmark results that the documents show.

    python ci/pictures.py            # write them
    python ci/pictures.py --check    # exit 1 if one is not current
    python ci/pictures.py FOLDER     # the same for a copy of the folder of the document

Needs hami-core, the plugins of the configurations, and matplotlib. The bytes of a plot depend on the version of
matplotlib: --check draws it, and compares only what it says.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOWTO = ROOT / "hami-core" / "docs" / "howto"
sys.path.insert(0, str(ROOT / "tests" / "python"))

DOCUMENT = "find-what-limits-your-pipeline.md"
# The picture, and the files in blocks of the document: the configuration, then modules to import.
CONFIGURATIONS = {
    "limits-before.svg": ("photos.toml", "classify.py"),
    "limits-after.svg": ("split.toml", "classify.py"),
}
RESULT = "limits-ocr.json"  # of hami bench ocr --output
GRAPH, PLOT = "limits-ocr.svg", "limits-ocr-loads.svg"
TEXT = re.compile(r">([^<>]+)</text>")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=HOWTO)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    folder, check = given.folder, given.check
    outdated = []
    for name, text in pictures(folder).items():
        place = folder / name
        before = place.read_text("utf-8") if place.is_file() else ""
        if said(name, before) != said(name, text):
            outdated.append(name)
            if not check:
                place.write_text(text, "utf-8")
    for name in outdated:
        print(f"{name} is not current; run python ci/pictures.py" if check else f"wrote {name}")
    return 1 if check and outdated else 0


def pictures(folder: Path) -> dict[str, str]:
    """Return each picture by its name."""
    from doc_blocks import blocks_of

    blocks = {block.directives.get("file"): block.text for block in blocks_of(folder / DOCUMENT)}
    drawn = {}
    with tempfile.TemporaryDirectory() as work:
        for name, (configuration, *modules) in CONFIGURATIONS.items():
            for file in (configuration, *modules):
                Path(work, file).write_text(blocks[file], "utf-8")
            imports = [f"--import={Path(work, module)}" for module in modules]
            drawn[name] = graph(Path(work), str(Path(work, configuration)), *imports)
        drawn[GRAPH] = graph(Path(work), "ocr", "--stats", str(folder / RESULT))
        drawn[PLOT] = plot(folder / RESULT, Path(work))
    return drawn


def graph(work: Path, source: str, *options: str) -> str:
    """Return the picture of a pipeline."""
    from hami.cli import main as hami

    if hami(["graph", source, "--format", "svg", "--output", str(work / "graph.svg"), *options]) != 0:
        raise SystemExit(f"no picture of {source}")
    return (work / "graph.svg").read_text("utf-8")


def plot(result: Path, work: Path) -> str:
    """Return the plot of a result of hami bench."""
    import matplotlib
    from hami_tools.bench.plot import plot

    with matplotlib.rc_context({"svg.hashsalt": result.name}):
        plot(json.loads(result.read_text("utf-8")), str(work / "plot.svg"))
    lines = (work / "plot.svg").read_text("utf-8").splitlines()
    return "\n".join([*(line.rstrip() for line in lines if "<dc:date>" not in line), ""])


def said(name: str, text: str) -> object:
    """Return what is compared of a picture."""
    return TEXT.findall(text) if name == PLOT else text


if __name__ == "__main__":
    sys.exit(main())
