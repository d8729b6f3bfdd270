"""Every code block of README.md runs, prints the output that it shows, or is skipped with its reason."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from doc_blocks import ROOT, Block, blocks_of
from doc_links import broken_links
from doc_run import Document

README = ROOT / "README.md"
BLOCKS = blocks_of(README)
PACKAGE_ROW = re.compile(r"^\| (?:`([\w-]+)`|\[`([\w-]+)`\]\(hami-plugins/\2/README\.md\)) \|", re.MULTILINE)


def without_colour_profile(png: bytes) -> bytes:
    """Remove the iCCP chunk; libpng prints a warning about the chunk in the image of scikit-image."""
    begin = png.find(b"iCCP") - 4  # a chunk is its length, its type, its data and a checksum
    return png if begin < 0 else png[:begin] + png[begin + 12 + int.from_bytes(png[begin : begin + 4], "big") :]


@pytest.fixture(scope="module")
def readme(tmp_path_factory: pytest.TempPathFactory) -> Document:
    folder = tmp_path_factory.mktemp("readme")
    pictures = importlib.util.find_spec("skimage")
    if pictures and pictures.origin:  # the image that the examples read
        page = Path(pictures.origin).parent / "data" / "page.png"
        (folder / "page.png").write_bytes(without_colour_profile(page.read_bytes()))
    return Document(README, folder)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.language}-{block.line}")
def test_block_of_readme(block: Block, readme: Document) -> None:
    readme.check(block)


def test_the_first_example_is_short_and_shows_its_output() -> None:
    example, output = BLOCKS[:2]
    assert (example.language, output.language) == ("python", "text")
    assert len(example.text.splitlines()) <= 15


def test_a_backend_takes_ten_lines() -> None:
    backend = next(block for block in BLOCKS if block.directives.get("file") == "shout.py")
    assert len(backend.text.splitlines()) <= 10


def test_the_table_of_packages_is_complete() -> None:
    plugins = {project.parent.name for project in ROOT.glob("hami-plugins/*/pyproject.toml")}
    rows = PACKAGE_ROW.findall(README.read_text("utf-8"))
    assert sorted(core or plugin for core, plugin in rows) == sorted({"hami-core", *plugins})


def test_links_point_to_existing_files() -> None:
    assert broken_links(README) == []
