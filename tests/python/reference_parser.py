"""An independent parser of expressions, slow and simple, that the parser of the core must agree with.

Written from the grammar and the rules of hami-core/docs/reference/expressions.md. Returns the same data as
`hami._core.parse_tree`; raises Refused if the text is not an expression.
"""

from __future__ import annotations

import re
from typing import Any

MAX_BYTES = 1 << 20
MAX_DEPTH = 200
SPACE = " \t\r\n"

IDENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DISTRIBUTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
TEMPLATE = r"\{[A-Za-z_][A-Za-z0-9_]*\}"
SEGMENT = rf"(?:[A-Za-z0-9_-]|{TEMPLATE})+"
PATH = re.compile(rf"{SEGMENT}(?:\.{SEGMENT})*")
NAME_BEHIND_DISTRIBUTION = re.compile(rf"(?:[A-Za-z_]|{TEMPLATE})(?:[A-Za-z0-9_]|{TEMPLATE})*")
WORD = re.compile(rf"(?:[A-Za-z0-9_.-]|{TEMPLATE})+")
BARE = re.compile(rf"(?:[^ \t\r\n,;()\[\]{{}}='\"]|{TEMPLATE})+")
QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
ESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t", "r": "\r"}

Tree = dict[str, Any]
Arg = tuple[str, str, bool]


class Refused(Exception):
    """The text is not an expression."""


def parse(text: str) -> Tree:
    if len(text.encode()) > MAX_BYTES:
        raise Refused("over 1 MiB")
    if any((ord(char) < 0x20 and char not in SPACE) or ord(char) == 0x7F for char in text):
        raise Refused("control byte")
    reader = Reader(text)
    reader.space()
    tree = expression(reader)
    if reader.at != len(text):
        raise Refused("something follows the expression")
    return tree


class Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    def space(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in SPACE:
            self.at += 1

    def next_is(self, mark: str) -> bool:
        return self.text.startswith(mark, self.at)

    def take(self, mark: str) -> bool:
        if not self.next_is(mark):
            return False
        self.at += len(mark)
        self.space()
        return True

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
            self.space()
        return found

    def open(self, mark: str) -> bool:
        if not self.take(mark):
            return False
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Refused("too deep")
        return True

    def close(self, mark: str) -> None:
        if not self.take(mark):
            raise Refused(f"{mark} expected")
        self.depth -= 1


def expression(reader: Reader) -> Tree:
    when = arguments(reader)
    distribution, name = dotted_name(reader)
    args = arguments(reader)
    return {
        "distribution": distribution,
        "name": name,
        "when": when,
        "args": args,
        "phases": brackets(reader),
    }


def dotted_name(reader: Reader) -> tuple[str, str]:
    word = a_word(reader)
    if not reader.take("::"):
        return "", whole(PATH, word)
    return whole(DISTRIBUTION, word), whole(NAME_BEHIND_DISTRIBUTION, a_word(reader))


def a_word(reader: Reader) -> str:
    found = reader.match(WORD)
    if found is None:
        raise Refused("a name expected")
    return found[0]


def whole(pattern: re.Pattern[str], word: str) -> str:
    if not pattern.fullmatch(word):
        raise Refused(f"{word!r} is not allowed here")
    return word


def arguments(reader: Reader) -> list[Arg]:
    if not reader.open("("):
        return []
    args = [argument(reader)]
    while reader.take(","):
        args.append(argument(reader))
    reader.close(")")
    no_key_twice(args)
    return args


def argument(reader: Reader) -> Arg:
    begin = reader.at
    key = reader.match(BARE)
    if key is not None and reader.take("="):
        return value(reader, whole(IDENT, key[0]))
    reader.at = begin
    return value(reader, "")


def value(reader: Reader, key: str) -> Arg:
    bare = reader.match(BARE)
    if bare is not None:
        return key, bare[0], False
    quoted = reader.match(QUOTED)
    if quoted is None:
        raise Refused("a value expected")
    text = re.sub(r"\\(.)", unescape, quoted[1] if quoted[1] is not None else quoted[2], flags=re.DOTALL)
    return key, text, "{" in text or "}" in text


def unescape(found: re.Match[str]) -> str:
    if found[1] not in ESCAPES:
        raise Refused(f"unknown escape {found[0]}")
    return ESCAPES[found[1]]


def brackets(reader: Reader) -> list[list[Tree]]:
    if not reader.open("["):
        return []
    phases = [phase(reader)]
    while reader.take(";"):
        phases.append(phase(reader))
    reader.close("]")
    no_key_twice([entry["setting"] for items in phases for entry in items if "setting" in entry])
    return phases


def phase(reader: Reader) -> list[Tree]:
    items = [item(reader)]
    while reader.take(","):
        items.append(item(reader))
    return items


def item(reader: Reader) -> Tree:
    begin = reader.at
    word = reader.match(WORD)
    if word is not None and reader.take("="):
        return {"alias": "", "setting": value(reader, whole(IDENT, word[0]))}
    if word is not None and reader.take(":="):
        return {"alias": whole(IDENT, word[0]), "expr": expression(reader)}
    reader.at = begin
    return {"alias": "", "expr": expression(reader)}


def no_key_twice(args: list[Arg]) -> None:
    keys = [key for key, _, _ in args if key]
    if len(keys) != len(set(keys)):
        raise Refused("a key is given twice")
