"""Turns Markdown that is written for code hosts into Markdown that MkDocs renders the same way."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from .pages import DOCS

# A fenced block, a comment, or a code span: text in which nothing is a link.
_OPAQUE = re.compile(
    r"(?P<fence>^(?P<ticks>```+|~~~+).*?^(?P=ticks)[ ]*$)"
    r"|(?P<comment>^<!--.*?-->\n?)"
    r"|(?P<span>(?<!`)(?P<quote>`+)(?!`)(?:(?!\n\n).)+?(?<!`)(?P=quote)(?!`))",
    re.MULTILINE | re.DOTALL,
)
# A link beside its text, or the definition of one that the text names.
_LINK = re.compile(r"(?P<before>\]\(|^\[[^\]\n]+\]: )(?P<target>[^)#\s]+)(?=[)#\s]|$)", re.MULTILINE)
_TITLE = re.compile(r"^<!-- file: (.+) -->\n(?:<!--.*-->\n)*```(\w+)$", re.MULTILINE)
_DOCTEST = re.compile(r"^(?P<indent>[ ]*)>>> .*\n?(?:^(?P=indent)\S.*\n?)*", re.MULTILINE)
_NESTED = re.compile(r"^(?:  )+(?=[*-] )", re.MULTILINE)

# Given a target that is a file of the repository, returns its place on the site, or None if it has none.
Place = Callable[[str], "str | None"]


def converted(text: str, source: str, place: str, find: Place) -> tuple[str, list[str]]:
    """Return the Markdown of the page, and the targets of links that lead nowhere.

    `source` is the path of the page in the repository and `place` its path on the site. `find` returns the place on the
    site of another file of the repository.
    """
    broken: list[str] = []

    def link(match: re.Match[str]) -> str:
        target = match["target"]
        if re.match(r"[a-z]+:", target):
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        found = find(file)
        if found is None:
            broken.append(target)
            return match[0]
        return match["before"] + relative(found, place)

    def prose(piece: str) -> str:
        return _NESTED.sub(lambda match: match[0] * 2, _LINK.sub(link, piece))

    text = _TITLE.sub(r'```\2 title="\1"', text)  # the directive before a block that readers save as a file
    pieces, end = [], 0
    for match in _OPAQUE.finditer(text):
        pieces += [prose(text[end : match.start()]), _opaque(match)]
        end = match.end()
    pieces.append(prose(text[end:]))
    return "".join(pieces), broken


def _opaque(match: re.Match[str]) -> str:
    if match["comment"]:
        return ""
    in_a_table = match["span"] and match.string[match.string.rfind("\n", 0, match.start()) + 1] == "|"
    return match[0].replace(r"\|", "|") if in_a_table else match[0]


def relative(target: str, page: str) -> str:
    """Return the link from one place on the site to another."""
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def finder(root: Path, pages: Mapping[str, str], files: dict[str, str]) -> Place:
    """Return a `find` for the checkout. A linked file that is not a page is published too: it is added to `files`."""

    def find(file: str) -> str | None:
        page = file if file in pages else f"{file}/README.md"
        if page in pages:
            return pages[page]
        if file.startswith("..") or not (root / file).is_file() or PurePosixPath(file).suffix == ".md":
            return None
        if file.startswith(f"{DOCS}/"):
            return file.removeprefix(f"{DOCS}/")  # MkDocs publishes it
        return files.setdefault(file, f"files/{file}")

    return find


def fenced(docstring: str) -> str:
    """Put each interactive example, up to an empty line, into a code block."""
    return _DOCTEST.sub(
        lambda match: f"{match['indent']}```pycon\n{match[0].rstrip()}\n{match['indent']}```\n", docstring
    )
