"""The documents of hami-core: code blocks run, links point to files, every public name is in the reference."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import hami
import pytest
from doc_blocks import ROOT, Block, blocks_of
from doc_links import broken_links, linked_files
from doc_run import Document

DOCS = ROOT / "hami-core" / "docs"
START = DOCS / "index.md"
FOLDERS = {"tutorial", "howto", "reference", "explanation", "decisions"}
PAGES = sorted(DOCS.rglob("*.md"))
CONCEPTS = [page for page in PAGES if page.parent.name == "explanation"]
BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def documented(*pages: str) -> set[str]:
    """Return the names that these reference pages define: the code in headings and in first cells of tables."""
    text = "\n".join((DOCS / "reference" / page).read_text("utf-8") for page in pages)
    cells = re.findall(r"^(?:#+ (.*)|\| (.*?) \|.*)$", text, re.MULTILINE)
    return {code for heading, cell in cells for code in re.findall(r"`([^`]+)`", heading or cell)}


def names(codes: Iterable[str]) -> set[str]:
    """Return the names without prefix and arguments: `scatter` for `hami.batching.scatter(batch, parts)`."""
    prefixes = r"(?:await )?(?:(?:hami|pipe)\.(?:[a-z]+\.)?)?"
    return {found[1] for code in codes if (found := re.match(rf"{prefixes}(\w+)", code))}


def exceptions() -> set[str]:
    found = {name: getattr(hami, name) for name in hami.__all__}
    return {name for name, value in found.items() if isinstance(value, type) and issubclass(value, BaseException)}


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


def test_the_commands_of_serve_a_model_take_at_most_five_minutes(document: Callable[[Path], Document]) -> None:
    """Processor time, which does not depend on other programs. The installation is not part of it."""
    page = document(DOCS / "tutorial" / "serve-a-model.md")
    for block in page.blocks:
        page.check(block)
    assert page.seconds <= 300


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_point_to_existing_files_and_headings(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_page_is_in_a_known_folder(page: Path) -> None:
    assert page == START or page.parent.name in FOLDERS


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, new = set(), {ROOT / "README.md"}
    while new:
        reached |= new
        new = {link for page in new for link in linked_files(page) if link in PAGES} - reached
    assert [page for page in PAGES if page not in reached] == []


@pytest.mark.parametrize("page", CONCEPTS, ids=lambda page: page.stem)
def test_each_concept_has_a_diagram(page: Path) -> None:
    assert any(block.language == "mermaid" for block in BLOCKS if block.document == page)


def steps_of_the_walk() -> list[tuple[Path, list[str]]]:
    """Return the file and the functions of each step of "Life of a request"."""
    page = DOCS / "explanation" / "life-of-a-request.md"
    found = re.findall(r"^### .*\n\n\[.*?\]\((.*?)\): (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return [((page.parent / link).resolve(), re.findall(r"`(\w+)`", functions)) for link, functions in found]


def test_each_step_of_the_walk_names_functions_of_its_file() -> None:
    steps = steps_of_the_walk()
    assert len(steps) == 14
    missing = [
        (file.name, name) for file, functions in steps for name in functions if name not in file.read_text("utf-8")
    ]
    assert missing == []


def test_the_walk_returns_to_a_folder_once_at_most() -> None:
    visits = [folder for folder, _ in itertools.groupby(file.parent for file, _ in steps_of_the_walk())]
    assert [folder.name for folder in visits if visits.count(folder) > 2] == []


def test_the_reference_has_a_row_for_each_exception() -> None:
    assert exceptions() - names(documented("requests.md")) == set()


def test_the_reference_has_a_row_for_each_public_name() -> None:
    pages = [page.name for page in (DOCS / "reference").glob("*.md") if page.name != "glossary.md"]
    modules = (hami, hami.batching, hami.native, hami.types)
    assert {name for module in modules for name in module.__all__} - names(documented(*pages)) == set()


def test_the_reference_has_a_row_for_each_method_of_a_pipe() -> None:
    methods = {name for name in dir(hami.Pipe) if not name.startswith("_")}
    assert methods - names(code for code in documented("requests.md") if "pipe." in code) == set()
