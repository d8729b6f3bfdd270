"""Checks the prose of the repository: phrases that a reader with English as a second language stumbles over.

Prose is: Markdown outside code; docstrings, comments and messages of Python; comments and messages of C and C++;
comments of TOML, YAML, CMake and shell. A message is a string literal that contains a space. Inline code in backticks
and the targets of links are not prose. Only the standard library is used.
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
from typing import NamedTuple

FROZEN = ("tests/abi/golden/",)  # copies of released files, which never change
PLACEHOLDER = "_"  # replaces a value inside an f-string: a word to the rules
INLINE_CODE = re.compile(r"(`+)[^`].*?\1", re.DOTALL)
LINK_TARGET = re.compile(r"(?<=\])\([^)\s]*\)|<https?://[^>\s]*>|https?://\S+")


class Finding(NamedTuple):
    """One phrase that must be rewritten."""

    path: str
    line: int
    phrase: str
    suggestion: str

    def __str__(self) -> str:
        return f'{self.path}:{self.line}: "{self.phrase}" -> {self.suggestion}'


@dataclass(frozen=True)
class Text:
    """A piece of prose: its lines joined by line breaks, and the number of each line in the file."""

    text: str
    lines: tuple[int, ...]

    def line_at(self, offset: int) -> int:
        starts = [0, *(found.end() for found in re.finditer("\n", self.text))]
        return self.lines[min(bisect_right(starts, offset), len(self.lines)) - 1]


Except = Callable[[str, re.Match[str]], bool]


class Rule:
    """A phrase, what to write instead, and where it is correct English."""

    def __init__(self, pattern: str, suggestion: str, unless: Except | None = None, *, exact_case: bool = False) -> None:
        self.pattern = re.compile(pattern, 0 if exact_case else re.IGNORECASE)
        self.suggestion = suggestion
        self.unless = unless

    def found_in(self, text: str) -> Iterator[re.Match[str]]:
        for match in self.pattern.finditer(text):
            if self.unless is None or not self.unless(text, match):
                yield match


# ---- where a phrase is correct English ----


def before(pattern: str) -> Except:
    """The text before the phrase ends with `pattern`."""
    compiled = re.compile(rf"{pattern}\s*\Z", re.IGNORECASE)
    return lambda text, match: compiled.search(text, max(0, match.start() - 80), match.start()) is not None


def after(pattern: str) -> Except:
    """The text after the phrase begins with `pattern`."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return lambda text, match: compiled.match(text, match.end()) is not None


def either(*conditions: Except) -> Except:
    return lambda text, match: any(condition(text, match) for condition in conditions)


def sentence(text: str, match: re.Match[str]) -> str:
    """The sentence around a phrase, with the punctuation that ends it."""
    ends = [found.end() for found in re.finditer(r"[.?!]+(?=\s|\Z)|\n\s*\n|\n(?=[|*#-])", text)]
    start = max((end for end in ends if end <= match.start()), default=0)
    return text[start : min((end for end in ends if end >= match.end()), default=len(text))]


def in_a_question(text: str, match: re.Match[str]) -> bool:
    return sentence(text, match).rstrip().endswith("?")


def about_geometry(text: str, match: re.Match[str]) -> bool:
    words = r"\b(radius|radii|draws?|drawn|pixels?|images?|ellipses?|polygons?|diameters?|centres?|centers?|contours?)\b"
    return re.search(words, sentence(text, match), re.IGNORECASE) is not None


# ---- the rules ----

# Where a clause begins: the start of the text, of a paragraph, an item or a cell, or after punctuation.
CLAUSE = r"(?:\A|(?<=[.?!;:(|\"“—])|(?<=\n\n)|(?<=\n[*#>-])|(?<=\A[*#>-])|(?<=[ \n]-))\s*(?:[*_]{1,2})?"
# Words after which "who" cannot refer to a noun before it.
NO_NOUN = r"(?<![\w-])(?:of|for|to|by|with|from|and|or|but|so|than|as|if|where|when|while|because|since|until|unless|that)\s+"
BE = r"(?:is|are|was|were|be|been|being)"

RULES = (
    Rule(
        rf"{CLAUSE}\bwho(?:m|se)?\b\s+(?!knows\b)[\w']+",
        'name the subject: "the caller that waits", "a request that …"',
        in_a_question,
    ),
    Rule(
        rf"{NO_NOUN}who\s+[\w']+",
        'name the subject: "of callers that wait"',
        either(in_a_question, before(r"\b(?:one|those|all|people|users?|authors?|callers?|readers?|somebody|anyone)")),
    ),
    Rule(r"\bwho(?:m)?ever\b", '"any caller that …", "the thread that …"'),
    Rule(
        rf"\b{BE}\s+no\b(?:\s+\w+|\s*\Z)",
        '"is not a …", "is not valid"',
        either(
            before(r"\bthere(?:\s+\w+){0,2}"),
            lambda text, match: re.search(
                r"\sno\s+(?:longer|different|matter|more|less|fewer|better|worse|sooner|wonder|good)\Z",
                match.group(),
                re.IGNORECASE,
            )
            is not None,
            lambda text, match: re.search(r"\w(?:er|ier)\Z", match.group()) is not None
            and after(r"\s+than\b")(text, match),
        ),
    ),
    Rule(rf"\b{BE}\s+(?:\w+ly\s+|also\s+|not\s+|then\s+)?told\b", '"the call raises …", "the log names …", "prints …"'),
    Rule(r"\btold\s+so\b", '"the call raises …", "the log names …"'),
    Rule(r"\btells?\s+so\b", '"reports this", "logs this"'),
    Rule(rf"\b{BE}\s+said\s+(?:so|of)\b", '"is reported", "is documented"'),
    Rule(r"\banew\b", '"again"'),
    Rule(r"\bfor\s+ever\b", '"indefinitely", "forever"'),
    Rule(r"\bpatience\b", '"timeout"; for closing "grace period"'),
    Rule(r"\bcompany\b", '"batching", "co-batched requests", "queue delay"'),
    Rule(
        r"\b(?:make|makes|made|making|no|has|have|had|having|for|enough|without)\s+room\b|\broom\s+(?:for|in|left)\b",
        '"capacity", "space"',
    ),
    Rule(r"\bcircles?\b", '"cycle", "deadlock cycle"', about_geometry),
    Rule(r"\blet(?:s|ting)?\s+go\b", '"releases"'),
    Rule(r"\b(?:at\s+)?all\s+the\s+same\b", '"nevertheless", "still", or delete it', before(rf"\b{BE}")),
    Rule(r"\b(?:a\s+way|ways)\s+of\s+(?:its|their|his|one's)\s+own\b", '"separately", "its own mechanism"'),
    Rule(r"\bha(?:s|ve|d)\s+(?:its|their|his)\s+way\b", '"takes effect", "wins"'),
    Rule(r"\bstands?\b(?![\w-])", '"is"', after(r"\s+(?:for|in\s+for|alone)\b")),
    Rule(r"\b(?:comes?|came|coming)\s+out\b", '"returns", "results in", "is the result"'),
    Rule(r"\bwhat\s+is\s+to\s+be\b", '"the value to …", "the request to …"'),
    Rule(
        rf"{CLAUSE}\bwhat\s+(?:is|are|was|were|has|had|can|cannot|may|must|needs?|comes|came|goes|waits|fails|runs|takes)\b",
        'name the subject: "requests that …", "a value that …"',
        in_a_question,
    ),
    Rule(r"\bLANGUAGE\.md\b|(?<![\w-])ABI\.md\b", "a page of hami-core/docs/reference", exact_case=True),
    Rule("\u00a7", "the title of the section"),
    Rule(r"\bt(?:ake|akes|aking|ook)\s+turns\b", '"run alternately", "start staggered"'),
    Rule(r"\b(?:its|their|his|whose|your)\s+turn\b", '"its start slot"'),
    Rule(r"\bbeg(?:in|ins|inning|an|un)\s+apart\b", '"start staggered"'),
    Rule(r"\bas\s+(?:it|they)\s+came\b", '"unchanged"'),
    Rule(r"\bnobody\b", '"no caller", "no thread", "not … by any …"'),
    Rule(r"\bsomebody\b", '"a caller", "another thread", "a user"'),
    Rule(r"\bwhatever\b", '"any"'),
    Rule(r"\bthe\s+ones?\s+(?:that|who|which)\b", "name the thing"),
    Rule(r"\bperhaps\b", '"may", or delete it'),
    Rule(r"\bthereby\b", '"so", or start a new sentence'),
    Rule(r"\bbesides\b", '"also", "in addition to", "except"'),
    Rule(r"\bhear(?:s|d|ing)?\s+of\b", '"learns of", "is notified of", "receives"'),
    Rule(r"\bbrings\b", '"provides", "contains", "installs"'),
)


def check_text(text: Text, path: str) -> Iterator[Finding]:
    """Apply every rule to one piece of prose."""
    for rule in RULES:
        for match in rule.found_in(text.text):
            phrase = match.group()
            offset = match.start() + len(phrase) - len(phrase.lstrip(" \n*_"))
            yield Finding(path, text.line_at(offset), " ".join(phrase.split()).strip("*_ "), rule.suggestion)


# ---- what is prose, by the kind of file ----


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
    words, lines, begun = [], [], False
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


def check_file(path: Path, shown: str) -> list[Finding]:
    """Every finding of one file, by line."""
    kind = kind_of(path)
    if kind is None or shown.startswith(FROZEN):
        return []
    source = path.read_text("utf-8")
    try:
        texts = list(kind(source))
    except (SyntaxError, tokenize.TokenError):  # a template with placeholders: at least its comments
        texts = list(comments(source))
    return sorted(
        dict.fromkeys(finding for text in texts for finding in check_text(text, shown)),
        key=lambda finding: finding.line,
    )
