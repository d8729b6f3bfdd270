"""Reads declarations of parameters as C++ backends write them: `max: int = 1024 {1..} 'number of values'`."""

from __future__ import annotations

import re
from typing import NamedTuple

_STRING = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_DECLARATION = re.compile(
    rf"\s*(?P<key>[\w:]+?)(?:\|\w+)*\s*:\s*(?P<type>\w+)(?P<optional>\?)?"
    rf"(?:\s*=\s*(?P<default>{_STRING}|[^\s{{;']+))?"
    rf"(?:\s*\{{(?P<values>[^}}]*)\}})?"
    rf"(?:\s*(?P<meaning>{_STRING}))?\s*(?:;|\Z)"
)


class Declaration(NamedTuple):
    """One parameter of a backend. `default` is as in a configuration file; None: the key is required."""

    key: str
    type: str
    default: str | None
    values: str = ""
    meaning: str = ""


def declared(text: str) -> Declaration:
    """Return the declaration that is all of `text`."""
    found = every(text)
    if len(found) != 1:
        raise ValueError(f"this is not the declaration of one parameter: {text}")
    return found[0]


def every(text: str) -> list[Declaration]:
    """Return each declaration of a list separated by semicolons."""
    found, end = [], 0
    while text[end:].strip():
        match = _DECLARATION.match(text, end)
        if not match:
            raise ValueError(f"this is not the declaration of a parameter: {text[end:]}")
        default = _unquoted(match["default"])
        none = bool(match["optional"]) or default == "None"
        meaning = _unquoted(match["meaning"]) or ""
        found.append(
            Declaration(match["key"], match["type"], "none" if none else default, match["values"] or "", meaning)
        )
        end = match.end()
    return found


def default_in_a_table(declaration: Declaration) -> str:
    """Return the default for a cell of a table."""
    default = declaration.default
    if default is None:
        return "required"
    return default if default == "none" else f"`{default}`" if default else "empty"


def _unquoted(text: str | None) -> str | None:
    if text is None or text[:1] not in ("'", '"'):
        return text
    return re.sub(r"\\(.)", r"\1", text[1:-1])
