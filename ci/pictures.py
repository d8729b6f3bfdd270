#!/usr/bin/env python3
"""Writes the pictures of pipelines in the documents, from the configurations that the documents show.

    python ci/pictures.py            # write them
    python ci/pictures.py --check    # exit 1 if one differs

Needs hami-core and the plugins of the configurations.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOWTO = ROOT / "hami-core" / "docs" / "howto"
sys.path.insert(0, str(ROOT / "tests" / "python"))

# The picture, the document, and the files in its blocks: the configuration, then modules to import.
PICTURES = (
    ("limits-before.svg", "find-what-limits-your-pipeline.md", "photos.toml", "classify.py"),
    ("limits-after.svg", "find-what-limits-your-pipeline.md", "split.toml", "classify.py"),
)


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    outdated = []
    for name, document, *files in PICTURES:
        text, place = picture(HOWTO / document, files), HOWTO / name
        if not place.is_file() or place.read_text("utf-8") != text:
            outdated.append(name)
            if not check:
                place.write_text(text, "utf-8")
    for name in outdated:
        print(f"{name} is not current; run python ci/pictures.py" if check else f"wrote {name}")
    return 1 if check and outdated else 0


def picture(document: Path, files: list[str]) -> str:
    """Return the picture of the configuration in a document."""
    from doc_blocks import blocks_of
    from hami._cli.main import main as hami

    blocks = {block.directives.get("file"): block.text for block in blocks_of(document)}
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            Path(folder, file).write_text(blocks[file], "utf-8")
        output = Path(folder, "picture.svg")
        modules = [f"--import={Path(folder, module)}" for module in files[1:]]
        status = hami(["graph", str(Path(folder, files[0])), "--format", "svg", "--output", str(output), *modules])
        if status != 0:
            raise SystemExit(f"{document.name}: no picture of {files[0]}")
        return output.read_text("utf-8")


if __name__ == "__main__":
    sys.exit(main())
