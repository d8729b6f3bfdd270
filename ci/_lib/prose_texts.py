"""Takes files apart into the pieces of prose that `ci/prose` checks, each with the numbers of its lines.

Prose is: Markdown outside code; docstrings, comments and messages of Python; comments and messages of C and C++;
comments of TOML, YAML, CMake and shell. A message is a string literal that contains a space. Inline code in backticks
and the targets of links are not prose.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PLACEHOLDER = "_"  # replaces a value inside an f-string: a word to the rules
INLINE_CODE = re.compile(r"(`+)[^`].*?\1", re.DOTALL)
LINK_TARGET = re.compile(r"(?<=\])\([^)\s]*\)|<https?://[^>\s]*>|https?://\S+")


@dataclass(frozen=True)
class Text:
    """A piece of prose: its lines joined by line breaks, and the number of each line in the file."""

    text: str
    lines: tuple[int, ...]

    def line_at(self, offset: int) -> int:
        starts = [0, *(found.end() for found in re.finditer("\n", self.text))]
        return self.lines[min(bisect_right(starts, offset), len(self.lines)) - 1]


def blanked(text: str, *patterns: re.Pattern[str]) -> str:
    """`text` with what matches `patterns` replaced by something that no rule finds; line breaks stay."""
    for pattern in patterns:
        text = pattern.sub(lambda match: re.sub(r"[^\n]", "\u00b7", match.group()), text)
    return text


def joined(lines: Iterable[tuple[int, str]]) -> Iterator[Text]:
    """One text for each run of adjacent numbered lines; an empty line separates paragraphs in it."""
    run: list[tuple[int, str]] = []
    for number, line in [*lines, (-1, "")]:
        if run and number != run[-1][0] + 1:
            yield Text(blanked("\n".join(text for _, text in run), INLINE_CODE), tuple(n for n, _ in run))
            run = []
        run.append((number, line.strip()))


def markdown(source: str) -> Iterator[Text]:
    """Everything outside fenced code."""
    fence = ""
    lines = []
    for number, line in enumerate(source.splitlines(), start=1):
        opening = re.match(r"\s*(`{3,}|~{3,})", line)
        if opening and not fence:
            fence = opening[1]
        elif opening and opening[1].startswith(fence) and line.strip() == opening[1]:
            fence = ""
        elif not fence:
            lines.append((number, line))
    for text in joined(lines):
        yield Text(blanked(text.text, LINK_TARGET), text.lines)


def comments(source: str, leader: str = "#") -> Iterator[Text]:
    """Comments that begin with `leader`: whole lines, and ends of lines after a space outside quotes."""
    quoted = r"\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'"
    pattern = re.compile(rf"{quoted}|(?:^|(?<=\s)){re.escape(leader)}+[ \t:]*(?P<comment>.*)$", re.MULTILINE)
    found = [match for match in pattern.finditer(source) if match["comment"] is not None]
    return joined((source.count("\n", 0, match.start("comment")) + 1, match["comment"]) for match in found)


def python(source: str) -> Iterator[Text]:
    """Comments, docstrings and messages."""
    with_comments = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            with_comments.append((token.start[0], token.string.lstrip("#: ")))
    yield from joined(with_comments)
    source_lines = source.splitlines()
    for node, value in strings(ast.parse(source)):
        if " " in value:
            yield located(value, node, source_lines)


def strings(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Every string literal; the values inside an f-string are placeholders."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else PLACEHOLDER for part in child.values)
            yield child, "".join(map(str, parts))
            for part in child.values:
                if isinstance(part, ast.FormattedValue):
                    yield from strings(part)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child, child.value
        else:
            yield from strings(child)


def located(value: str, node: ast.expr, source_lines: list[str]) -> Text:
    """The text of a literal with its lines. Of one in several parts, each word is looked for in the source."""
    last = node.end_lineno or node.lineno
    text = blanked(value, INLINE_CODE)
    if last - node.lineno == value.count("\n"):
        return Text(text, tuple(range(node.lineno, last + 1)))
    lines, at = [], node.lineno
    words = text.split()  # one in each line of the text, so that each has a number of its own
    for word in words:
        at = next((number for number in range(at, last + 1) if word in source_lines[number - 1]), at)
        lines.append(at)
    return Text("\n".join(words), tuple(lines))


C_TOKEN = re.compile(
    r"""
    (?P<raw>R"(?P<delimiter>[^()\s\\]*)\((?P<rawtext>.*?)\)(?P=delimiter)")
    | (?P<string>"(?P<text>(?:\\.|[^"\\\n])*)")
    | '(?:\\.|[^'\\\n])+'
    | //(?P<line>[^\n]*)
    | /\*(?P<block>.*?)\*/
    """,
    re.VERBOSE | re.DOTALL,
)
C_ESCAPES = {r"\n": " ", r"\t": " ", r"\"": '"', r"\\": "\\", r"\'": "'"}


def c(source: str) -> Iterator[Text]:
    """Comments and messages of C and C++; adjacent literals are one message."""
    line_comments: list[tuple[int, str]] = []
    message: list[tuple[int, str]] = []
    end = 0
    for match in C_TOKEN.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        if match["line"] is not None:
            line_comments.append((line, match["line"].strip("/ <")))
        elif match["block"] is not None:
            block = match["block"].split("\n")
            yield from joined((line + offset, text.strip().strip("*").strip()) for offset, text in enumerate(block))
        elif match["raw"] is not None:
            text = match["rawtext"]
            if " " in text:
                yield Text(blanked(text, INLINE_CODE), tuple(range(line, line + text.count("\n") + 1)))
        elif match["string"] is not None:
            if message and source[end : match.start()].strip():
                yield from spoken(message)
                message = []
            message.append((line, re.sub(r"\\.", lambda m: C_ESCAPES.get(m.group(), " "), match["text"])))
            end = match.end()
    yield from spoken(message)
    yield from joined(line_comments)


def spoken(message: list[tuple[int, str]]) -> Iterator[Text]:
    """A message in one or more literals, one word in each line of the text; no space is added between literals."""
    words: list[str] = []
    lines: list[int] = []
    begun = False
    for line, part in message:
        for piece in re.findall(r" +|[^ ]+", part):
            if piece.isspace():
                begun = False
            elif begun:
                words[-1] += piece
            else:
                words.append(piece)
                lines.append(line)
                begun = True
    if any(" " in part for _, part in message):
        yield Text(blanked("\n".join([*words, ""]), INLINE_CODE), (*lines, message[-1][0]))


KINDS: dict[str, Callable[[str], Iterator[Text]]] = {
    **dict.fromkeys((".md",), markdown),
    **dict.fromkeys((".py", ".pyi"), python),
    **dict.fromkeys((".c", ".h", ".cpp", ".hpp"), c),
    **dict.fromkeys((".toml", ".yml", ".yaml", ".cmake", ".sh"), comments),
}


def kind_of(path: Path) -> Callable[[str], Iterator[Text]] | None:
    """How to read a file, by its name or its first line; None if it has no prose. Templates end with .in."""
    name = path.name.removesuffix(".in")
    suffix = Path(name).suffix
    if suffix in KINDS:
        return KINDS[suffix]
    if name in ("CMakeLists.txt", "Dockerfile", ".gitignore", ".clang-format", ".codespellrc"):
        return comments
    if not suffix and path.is_file():
        with path.open("rb") as file:
            first = file.readline(80)
        if first.startswith(b"#!"):
            return python if b"python" in first else comments
    return None


def texts_of(path: Path) -> list[Text]:
    """Every piece of prose in a file."""
    kind = kind_of(path)
    if kind is None:
        return []
    source = path.read_text("utf-8")
    try:
        return list(kind(source))
    except (SyntaxError, tokenize.TokenError):  # a template with placeholders: at least its comments
        return list(comments(source))
