"""Resolves references in values: ${key}, ${env:NAME} and ${env:NAME:-default}. Nothing is evaluated."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Mapping
from typing import Any

from hami._config.document import Entry
from hami._config.problems import Problems, got, name_of, of, quoted, show
from hami._text import did_you_mean, is_text

MAX_CHAIN = 100  # references that lead to each other
MAX_LISTS = 32  # nested lists
MAX_SUGGESTIONS = 20  # among many mistakes, they are searched for the first ones only
MAX_GROWTH = 1 << 24  # characters and list items that all references together may insert

# "$${" is a literal "${". Balanced braces inside a reference, such as "{node_name}" in a default, are text.
_REFERENCE = re.compile(r"\$\$\{|\$\{((?:[^{}]|\{[^{}]*\})*)\}|\$\{")
_ENVIRONMENT = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.S)
_KEY = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_FORMS = "write ${key}, ${env:NAME} or ${env:NAME:-default}, and $${ for the text ${"

# Values of environment variables that configurations of this process have referred to: they may be secrets.
referred: dict[str, None] = {}

Key = tuple[str, str]  # section ("" is the top level), key
Sections = Mapping[str, Mapping[str, Entry]]


class _Unknown(Exception):
    """A value cannot be determined; the reason is among the problems."""


class Values:
    """The values of all keys of a configuration, with references resolved.

    A reference in a node refers to a key of the node, otherwise of [global]. A reference in [global] or at the top
    level refers to [global] only.
    """

    def __init__(self, sections: Sections, problems: Problems) -> None:
        self._sections = sections
        self._problems = problems
        self._resolved: dict[Key, tuple[Any, int]] = {}  # value and size
        self._resolving: list[Key] = []  # the keys that are being resolved, outermost first
        self._inserted = 0
        self.unknown: set[Key] = set()
        self.used: set[Key] = set()  # keys that other values refer to

    def value(self, section: str, key: str) -> Any:
        """Return the value of a key; None if it cannot be determined, and then the key is in `unknown`."""
        try:
            return self._resolve(section, key)[0]
        except _Unknown:
            return None

    def _resolve(self, section: str, key: str) -> tuple[Any, int]:
        at = (section, key)
        if at in self.unknown:
            raise _Unknown
        if at not in self._resolved:
            self._resolving.append(at)
            try:
                self._resolved[at] = self._checked(self._sections[section][key].value, 0)
            except _Unknown:
                self.unknown.add(at)
                raise
            finally:
                self._resolving.pop()
        return self._resolved[at]

    def _checked(self, value: Any, depth: int) -> tuple[Any, int]:
        if isinstance(value, str):
            if not is_text(value):
                raise self._invalid("is not valid text: it contains half a surrogate pair, or bytes that are not UTF-8")
            return self._text(value) if "${" in value else (value, len(value))
        if isinstance(value, (list, tuple)):
            if depth > MAX_LISTS:
                raise self._invalid(f"has lists that are nested more than {MAX_LISTS} deep")
            pairs = [self._checked(item, depth + 1) for item in value]
            return [item for item, _ in pairs], sum(size + 1 for _, size in pairs)
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise self._invalid("must be an int of at most 64 bits")
        if value is None or isinstance(value, (bool, int, float)):
            return value, 1
        converted = _converted(value)
        if converted is None:
            raise self._invalid(f"takes text, numbers, booleans or lists of them, got {got(value)}")
        return self._checked(converted, depth)

    def _text(self, text: str) -> tuple[Any, int]:
        whole = _REFERENCE.fullmatch(text)
        if whole and whole.group(1) is not None:  # a single reference: the value keeps its type
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
        joined = "".join([*parts, text[end:]])
        return joined, len(joined)

    def _replacement(self, found: re.Match[str]) -> tuple[Any, int]:
        name = found.group(1)
        if name is None:
            raise self._problem('"${" is never closed', found, hint=_FORMS)
        environment = _ENVIRONMENT.fullmatch(name)
        if environment and "${" not in name:
            value: Any = self._variable(found, *environment.groups())
            size = len(value)
        elif _KEY.fullmatch(name):
            value, size = self._key(found, name)
        else:
            hint = "a default must be plain text" if environment else _FORMS
            raise self._problem(f"{found.group()} is not a valid reference", found, hint=hint)
        self._inserted += size
        if self._inserted > MAX_GROWTH:
            if self._inserted - size <= MAX_GROWTH:  # reported once
                self._invalid("exceeds the 16 MiB that all references together may insert", found)
            raise _Unknown
        return value, size

    def _variable(self, found: re.Match[str], name: str, default: str | None) -> str:
        value = os.environ.get(name)
        if not value and default is not None:
            return default
        if value is None:
            near = did_you_mean(name, os.environ)
            raise self._problem(
                f"the environment variable {name} is not set{near}",
                found,
                hint=f"set it, or write ${{env:{name}:-default}}",
            )
        if not is_text(value):
            raise self._problem(f"the environment variable {name} contains bytes that are not UTF-8", found)
        referred[value] = None
        return value

    def _key(self, found: re.Match[str], name: str) -> tuple[Any, int]:
        own = self._resolving[-1][0]
        if "global" not in self._sections:
            raise self._problem(f"{found.group()} is not available in extends", found, hint="use ${env:NAME}")
        if name == "node_name" and own not in ("", "global"):
            return own, len(own)
        if name == "config_dir":
            return self._folder(found)
        section = next((each for each in dict.fromkeys((own, "global")) if name in self._visible(each)), None)
        if section is None:
            raise self._problem(self._missing(name, own), found)
        if (section, name) in self._resolving:
            cycle = [key for _, key in self._resolving[self._resolving.index((section, name)) :]]
            raise self._invalid(f"refers to itself: {' -> '.join([*cycle, name])}", found)
        if len(self._resolving) >= MAX_CHAIN:
            raise self._invalid(f"needs more than {MAX_CHAIN} nested references", found)
        self.used.add((section, name))
        return self._resolve(section, name)

    def _folder(self, found: re.Match[str]) -> tuple[str, int]:
        """Return the folder of the file that contains the reference; without a file, the current folder."""
        section, key = self._resolving[-1]
        folder = self._sections[section][key].folder or os.getcwd()
        if not is_text(folder):
            raise self._problem(f"{found.group()} is a path that is not UTF-8", found)
        return folder, len(folder)

    def _missing(self, name: str, own: str) -> str:
        suggest = len(self._problems) < MAX_SUGGESTIONS
        near = did_you_mean(name, {**self._visible("global"), **self._visible(own)}, quoted=True) if suggest else ""
        if own in ("", "global"):
            return f"[global] has no key {quoted(name)}{near}"
        return f"neither {name_of(own)} nor [global] has a key {quoted(name)}{near}"

    def _visible(self, section: str) -> Mapping[str, Entry]:
        return self._sections.get(section, {}) if section else {}

    def _invalid(self, problem: str, found: re.Match[str] | None = None) -> _Unknown:
        """Add a problem of the key that is being resolved; `problem` follows its name."""
        section, key = self._resolving[-1]
        return self._problem(f"{quoted(key)}{of(section)} {problem}", found)

    def _problem(self, headline: str, found: re.Match[str] | None, hint: str = "") -> _Unknown:
        """Add a problem with the value that is being resolved."""
        section, key = self._resolving[-1]
        value, place, _ = self._sections[section][key]
        at = None if found is None else found.span() if isinstance(value, str) else found.group()
        self._problems.add(headline, key, value, section=section, place=place, at=at, hint=hint)
        return _Unknown()


def _converted(value: Any) -> Any:
    """Return a path as text, and a scalar of numpy or torch as a Python number; None for any other value."""
    if isinstance(value, os.PathLike):
        path = os.fspath(value)
        return path if isinstance(path, str) else None
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        single = value.item()
        return single if isinstance(single, (bool, int, float)) else None
    try:
        return operator.index(value)
    except TypeError:  # not an int; a class or an array may have an __index__ too
        return None
