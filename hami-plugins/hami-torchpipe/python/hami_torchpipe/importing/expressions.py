"""Reads expressions of torchpipe as trees, and writes trees as expressions of HAMi."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hami import ConfigError

_MAX_DEPTH = 200  # of HAMi's own expressions
_TOKEN = re.compile(r"\s*(?:(?P<mark>[\[\](),;])|(?P<quoted>'[^']*'|\"[^\"]*\")|(?P<word>[^\s\[\](),;'\"]+))")
_BARE = re.compile(r"""[^\s,;()\[\]{}='"]+""")


@dataclass
class Call:
    """A backend of an expression: `(condition)name(arguments)[phase; phase]`."""

    name: str
    condition: str = ""
    arguments: list[str] = field(default_factory=list)
    phases: list[list[Call]] = field(default_factory=list)
    took_tensors: bool = False  # before it was replaced by a backend for images

    def items(self) -> list[Call]:
        """Return the items of all phases."""
        return [item for phase in self.phases for item in phase]

    def __str__(self) -> str:
        condition = f"({self.condition})" if self.condition else ""
        arguments = f"({','.join(self.arguments)})" if self.arguments else ""
        inside = ";".join(",".join(map(str, phase)) for phase in self.phases)
        return f"{condition}{self.name}{arguments}" + (f"[{inside}]" if self.phases else "")


def argument(text: str) -> str:
    """Return a value as an argument of an expression, in quotes where it needs them."""
    if _BARE.fullmatch(text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def parse(text: str) -> Call:
    """Read an expression of torchpipe.

    Raises:
        ConfigError: The text is not an expression.
    """
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._error("has a quote without an end")
            self._tokens.append(found[0].strip())
            at = found.end()
        self._at = 0

    def whole(self) -> Call:
        call = self._call(0)
        if self._at < len(self._tokens):
            raise self._error(f'has "{self._peek()}" after its end')
        return call

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, expected: str) -> None:
        if self._peek() != expected:
            given = f'"{self._peek()}"' if self._peek() else "the end"
            raise self._error(f'has {given} where "{expected}" is expected')
        self._at += 1

    def _error(self, problem: str) -> ConfigError:
        return ConfigError(f'the expression "{self._text}" {problem}; an expression is Name(key=value)[Name, Name]')

    def _call(self, depth: int) -> Call:
        if depth > _MAX_DEPTH:
            raise self._error(f"nests more than {_MAX_DEPTH} brackets")
        condition = ""
        if self._peek() == "(":
            condition = ",".join(self._arguments())
        name = self._peek()
        if not name or name[0] in "[](),;'\"":
            raise self._error(f"has {f'{name!r}' if name else 'the end'} where a name is expected")
        self._at += 1
        call = Call(name, condition)
        if self._peek() == "(":
            call.arguments = self._arguments()
        if self._peek() == "[":
            self._at += 1
            call.phases = [self._phase(depth)]
            while self._peek() == ";":
                self._at += 1
                call.phases.append(self._phase(depth))
            self._take("]")
        return call

    def _phase(self, depth: int) -> list[Call]:
        items = [self._call(depth + 1)]
        while self._peek() == ",":
            self._at += 1
            items.append(self._call(depth + 1))
        return items

    def _arguments(self) -> list[str]:
        """Return the texts between parentheses; brackets in them, as in `target=S[A,B]`, belong to the value."""
        self._take("(")
        values, depth = [""], 0
        while self._peek() != ")" or depth:
            token = self._peek()
            if not token:
                raise self._error("has a parenthesis without an end")
            self._at += 1
            if token == "," and not depth:
                values.append("")
                continue
            depth += (token in "([") - (token in ")]")
            values[-1] += token
        self._at += 1
        return [value for value in values if value]
