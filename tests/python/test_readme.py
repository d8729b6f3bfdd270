"""Every code block of README.md runs, prints what it says, or is skipped with its reason."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from doc_blocks import ROOT, Block, blocks_of
from doc_links import broken_links
from doc_run import Document

README = ROOT / "README.md"
BLOCKS = blocks_of(README)


@pytest.fixture(scope="module")
def readme(tmp_path_factory: pytest.TempPathFactory) -> Document:
    folder = tmp_path_factory.mktemp("readme")
    pictures = importlib.util.find_spec("skimage")
    if pictures and pictures.origin:  # the page that the examples read
        shutil.copy(Path(pictures.origin).parent / "data" / "page.png", folder / "page.png")
    return Document(README, folder)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.language}-{block.line}")
def test_block_of_readme(block: Block, readme: Document) -> None:
    readme.check(block)


def test_the_example_is_short() -> None:
    example = next(block for block in BLOCKS if block.language == "python")
    assert len(example.text.splitlines()) <= 15


def test_a_backend_takes_ten_lines() -> None:
    backend = next(block for block in BLOCKS if block.directives.get("file") == "shout.py")
    assert len(backend.text.splitlines()) <= 10


def test_links_lead_to_files() -> None:
    assert broken_links(README) == []
