"""The documents of hami-core: code blocks run, links lead somewhere, nothing of the core is left out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import hami
import pytest
from doc_blocks import ROOT, Block, blocks_of
from doc_links import broken_links
from doc_run import Document

DOCS = ROOT / "hami-core" / "docs"
FOLDERS = {"tutorial", "howto", "reference", "explanation", "decisions"}
PAGES = sorted(DOCS.rglob("*.md"))
BLOCKS = [block for page in PAGES for block in blocks_of(page)]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Document]:
    made: dict[Path, Document] = {}

    def get(page: Path) -> Document:
        if page not in made:
            made[page] = Document(page, tmp_path_factory.mktemp(page.stem))
        return made[page]

    return get


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.document.stem}-{block.language}-{block.line}")
def test_block_of_document(block: Block, document: Callable[[Path], Document]) -> None:
    document(block.document).check(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_files(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_is_of_one_kind(page: Path) -> None:
    assert page.parent.name in FOLDERS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_can_be_reached(page: Path) -> None:
    others = [ROOT / "README.md", *(other for other in PAGES if other != page)]
    assert any(f"{page.name})" in other.read_text("utf-8") for other in others)


def test_reference_has_every_exception() -> None:
    text = (DOCS / "reference" / "requests.md").read_text("utf-8")
    exceptions = {
        name
        for name in hami.__all__
        if isinstance(value := getattr(hami, name), type) and issubclass(value, BaseException)
    }
    assert {name for name in exceptions if f"`{name}`" not in text} == set()


def test_reference_has_every_public_name() -> None:
    text = "".join(page.read_text("utf-8") for page in (DOCS / "reference").glob("*.md"))
    named = set(re.findall(r"`hami\.(\w+)", text)) | set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert set(hami.__all__) - named == set()
