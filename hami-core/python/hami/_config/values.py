"""Puts in what ${…} stands for: ${key}, ${env:NAME}, ${env:NAME:-default}. Looks values up, evaluates nothing."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Mapping
from typing import Any

from hami import _core
from hami._config.document import Entry
from hami._config.problems import Problems, got, is_text, name_of, of, quoted, show

MAX_CHAIN = 100  # keys that refer to keys
MAX_LISTS = 32  # in one another
MAX_GROWTH = 1 << 24  # what all references together may put in, in characters and items

# "$${" is a plain "${"; braces inside, as of "{node_name}" in a default, are text if they close.
_REFERENCE = re.compile(r"\$\$\{|\$\{((?:[^{}]|\{[^{}]*\})*)\}|\$\{")
_ENVIRONMENT = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.S)
_KEY = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_FORMS = "write ${key}, ${env:NAME} or ${env:NAME:-default}, and $${ for a plain ${"

Key = tuple[str, str]  # section ("" is the top level), key
Sections = Mapping[str, Mapping[str, Entry]]


class _Unknown(Exception):
    """A value cannot be made out; why is among the problems."""


class Values:
    """The values of all keys of a configuration with their references replaced.

    A reference sees the keys beside it and those of [global]; one in [global] or at the top level sees [global] only.
    """

    def __init__(self, sections: Sections, problems: Problems) -> None:
        self._sections = sections
        self._problems = problems
        self._made: dict[Key, tuple[Any, int]] = {}  # value and size
        self._open: list[Key] = []  # what is being made, outermost first
        self._grown = 0
        self.unknown: set[Key] = set()
        self.used: set[Key] = set()  # keys that other values reference

    def value(self, section: str, key: str) -> Any:
        """Return the value of a key, None if it could not be made out."""
        try:
            return self._make(section, key)[0]
        except _Unknown:
            return None

    def _make(self, section: str, key: str) -> tuple[Any, int]:
        at = (section, key)
        if at in self.unknown:
            raise _Unknown
        if at not in self._made:
            self._open.append(at)
            try:
                self._made[at] = self._checked(self._sections[section][key].value, 0)
            except _Unknown:
                self.unknown.add(at)
                raise
            finally:
                self._open.pop()
        return self._made[at]

    def _checked(self, value: Any, depth: int) -> tuple[Any, int]:
        if isinstance(value, str):
            if not is_text(value):
                raise self._wrong("contains half a surrogate pair, which is not valid text")
            return self._text(value) if "${" in value else (value, len(value))
        if isinstance(value, (list, tuple)):
            if depth > MAX_LISTS:
                raise self._wrong(f"has lists in lists, more than {MAX_LISTS} deep")
            pairs = [self._checked(item, depth + 1) for item in value]
            return [item for item, _ in pairs], sum(size + 1 for _, size in pairs)
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise self._wrong("has more than the 64 bits of a whole number")
        if value is None or isinstance(value, (bool, int, float)):
            return value, 1
        plain = _plain(value)
        if plain is None:
            raise self._wrong(f"takes text, numbers, booleans or lists of them, got {got(value)}")
        return self._checked(plain, depth)

    def _text(self, text: str) -> tuple[Any, int]:
        whole = _REFERENCE.fullmatch(text)
        if whole and whole.group(1) is not None:  # nothing around it: the type stays
            return self._replacement(whole)
        parts: list[str] = []
        end = 0
        for found in _REFERENCE.finditer(text):
            parts.append(text[end : found.start()])
            end = found.end()
            if found.group() == "$${":
                parts.append("${")
                continue
            value, _ = self._replacement(found)
            if value is None or isinstance(value, list):
                kind = "a list" if isinstance(value, list) else "None"
                raise self._problem(f"{found.group()} is {kind}, which cannot be inserted into text", found)
            parts.append(value if isinstance(value, str) else show(value))
        made = "".join([*parts, text[end:]])
        return made, len(made)

    def _replacement(self, found: re.Match[str]) -> tuple[Any, int]:
        name = found.group(1)
        if name is None:
            raise self._problem('"${" is never closed', found, hint=_FORMS)
        environment = _ENVIRONMENT.fullmatch(name)
        if environment and "${" not in name:
            made: Any = self._variable(found, *environment.groups())
            size = len(made)
        elif _KEY.fullmatch(name):
            made, size = self._key(found, name)
        else:
            hint = "a default is plain text" if environment else _FORMS
            raise self._problem(f"{found.group()} is not a valid reference", found, hint=hint)
        self._grown += size
        if self._grown > MAX_GROWTH:
            if self._grown - size <= MAX_GROWTH:  # told once
                self._wrong("lets the configuration grow over 16 MiB by its references", found)
            raise _Unknown
        return made, size

    def _variable(self, found: re.Match[str], name: str, default: str | None) -> str:
        value = os.environ.get(name)
        if not value and default is not None:
            return default
        if value is None:
            near = _core.did_you_mean(_core.near_names(name, [one for one in os.environ if is_text(one)]))
            raise self._problem(
                f"the environment has no variable {name}{near}",
                found,
                hint=f"set it, or write ${{env:{name}:-default}}",
            )
        if not is_text(value):
            raise self._problem(f"the environment variable {name} contains bytes that are not UTF-8", found)
        return value

    def _key(self, found: re.Match[str], name: str) -> tuple[Any, int]:
        own = self._open[-1][0]
        if "global" not in self._sections:
            raise self._problem(
                f"{found.group()} is not known yet where a file is extended", found, hint="use ${env:NAME}"
            )
        if name == "node_name" and own not in ("", "global"):
            return own, len(own)
        section = next((one for one in dict.fromkeys((own, "global")) if name in self._visible(one)), None)
        if section is None:
            raise self._problem(self._missing(name, own), found)
        if (section, name) in self._open:
            circle = [key for _, key in self._open[self._open.index((section, name)) :]]
            raise self._wrong(f"refers to itself: {' -> '.join([*circle, name])}", found)
        if len(self._open) >= MAX_CHAIN:
            raise self._wrong(f"needs more than {MAX_CHAIN} nested references", found)
        self.used.add((section, name))
        return self._make(section, name)

    def _missing(self, name: str, own: str) -> str:
        seen = {**self._visible("global"), **self._visible(own)}
        near = _core.did_you_mean(_core.near_names(name, list(seen)), quoted=True)
        if own in ("", "global"):
            return f"[global] has no key {quoted(name)}{near}"
        return f"neither {name_of(own)} nor [global] has a key {quoted(name)}{near}"

    def _visible(self, section: str) -> Mapping[str, Entry]:
        return self._sections.get(section, {}) if section else {}

    def _wrong(self, what: str, found: re.Match[str] | None = None) -> _Unknown:
        section, key = self._open[-1]
        return self._problem(f"{quoted(key)}{of(section)} {what}", found)

    def _problem(self, headline: str, found: re.Match[str] | None, hint: str = "") -> _Unknown:
        """Note what is wrong with the value that is being made."""
        section, key = self._open[-1]
        value, place = self._sections[section][key]
        at = None if found is None else found.span() if isinstance(value, str) else found.group()
        self._problems.add(headline, key, value, section=section, place=place, at=at, hint=hint)
        return _Unknown()


def _plain(value: Any) -> Any:
    """Return a path as text, a single value of numpy or torch as Python's own; None for what is neither."""
    if isinstance(value, os.PathLike):
        path = os.fspath(value)
        return path if isinstance(path, str) else None
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        single = value.item()
        return single if isinstance(single, (bool, int, float)) else None
    try:
        return operator.index(value)
    except TypeError:  # a class or an array, which have an __index__ too
        return None
