"""Finds the line of each key of a TOML text, which tomllib does not report."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["count_keys", "key_lines", "tomllib"]

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
# Long forms first: """ also starts with an empty "".
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{1,2}(?!"))?|\'\'\'.*?\'\'\'(?:\'{1,2}(?!\'))?|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'', re.S
)
_OPAQUE = re.compile(rf"{_STRING.pattern}|#[^\n]*", re.S)
_HEADER = re.compile(r"^[ \t]*\[[^=,\n]*\][ \t]*$", re.M)
_SCALAR = re.compile(r"[^,\]}\n#]*")

Path = tuple[str, ...]


def key_lines(text: str) -> dict[Path, int]:
    """Return path of keys -> line, counted from 1, for every table and key of a valid TOML text.

    >>> key_lines("[det]\\nmodel = 'a.onnx'")
    {('det',): 1, ('det', 'model'): 2}
    """
    return _Scanner(text).document()


def count_keys(text: str, enough: int) -> int:
    """Return the number of keys and table headers of a TOML text, without parsing it; an upper bound up to `enough`.

    >>> count_keys("[det]\\nmodel = 'a = b'  # c = d", 1)
    2
    """
    bound = text.count("=") + text.count("[")
    if bound <= enough:
        return bound
    plain = _OPAQUE.sub("", text)
    return plain.count("=") + len(_HEADER.findall(plain))


class _Scanner:
    """Walks over a text that tomllib has accepted, so that no mistake needs a message here."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.counted = 0  # `line` is the line of this offset
        self.lines: dict[Path, int] = {}

    def document(self) -> dict[Path, int]:
        table: Path = ()
        while self.skip(_SPACE) is not None and self.at < len(self.text):
            if self.text[self.at] == "[":
                line, is_array = self.current_line(), self.text.startswith("[[", self.at)
                self.at += 2 if is_array else 1
                table = self.key()
                self.at += 2 if is_array else 1
                self.lines.setdefault(table, line)
            else:
                self.pair(table)
        return self.lines

    def pair(self, table: Path) -> None:
        line = self.current_line()
        path = table + self.key()
        for length in range(len(table) + 1, len(path) + 1):
            self.lines.setdefault(path[:length], line)
        self.at += 1  # "="
        self.value(path)

    def key(self) -> Path:
        """Read a dotted key and the space after it."""
        parts = []
        while True:
            self.skip(_SPACE)
            bare = self.skip(_BARE)
            parts.append(bare if bare else self.quoted())
            self.skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return tuple(parts)
            self.at += 1

    def quoted(self) -> str:
        text: str = tomllib.loads(f"key = {self.skip(_STRING)}")["key"]
        return text

    def value(self, path: Path) -> None:
        self.skip(_SPACE)
        if self.text.startswith("{", self.at):
            self.items("}", lambda: self.pair(path))
        elif self.text.startswith("[", self.at):
            self.items("]", lambda: self.value(path))
        elif not self.skip(_STRING):
            self.skip(_SCALAR)

    def items(self, end: str, item: Callable[[], None]) -> None:
        """Read the comma-separated content of brackets."""
        self.at += 1
        while True:
            self.skip(_SPACE)
            if self.text.startswith(",", self.at):
                self.at += 1
            elif self.text.startswith(end, self.at):
                self.at += 1
                return
            else:
                item()

    def skip(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
            return found.group()
        return None

    def current_line(self) -> int:
        self.line += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        return self.line
