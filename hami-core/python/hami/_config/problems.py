"""Error messages about a configuration: the problem, the setting with carets, the file and line, and a hint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hami import _core
from hami._errors import ConfigError
from hami._text import printable

_NOTHING: Any = object()
MAX_SHOWN = 60  # characters of a value in a headline


class Problems(list[Exception]):
    """The errors of a configuration, collected so that they are reported together."""

    def add(
        self,
        headline: str,
        key: object = "",
        value: Any = _NOTHING,
        *,
        section: str = "",
        place: str = "",
        at: tuple[int, int] | str | None = None,
        hint: str = "",
    ) -> None:
        """Add an error about a setting.

        The carets mark `at`, a part of the value or its position in the value; without it, they mark the key.
        """
        text = (f"[{key}]" if value is _NOTHING else f"{key} = {show(value)}") if key != "" else ""
        self.append(ConfigError(with_caret(headline, text, _span(text, key, value, at), section, place, hint)))


def with_caret(headline: str, text: str, span: tuple[int, int], section: str, place: str, hint: str) -> str:
    """Return a message in the form of those of the core; without a text, it has no line with carets."""
    where = ", ".join(filter(None, [section and name_of(section), place]))
    if not text:
        return printable(headline) + (f"   ({where})" if where else "") + (f"\n  {hint}" if hint else "")
    begin, end = (len(printable(text[:index]).encode()) for index in span)
    return _core.message_with_caret(printable(headline), printable(text), begin, end, where, hint)


def _span(text: str, key: object, value: Any, at: tuple[int, int] | str | None) -> tuple[int, int]:
    if value is _NOTHING or at is None:
        return 0, len(text) if value is _NOTHING else len(str(key))
    start = len(f"{key} = ")
    if isinstance(at, str):
        found = text.find(at, start)
        return (found, found + len(at)) if found >= 0 else (start, len(text))
    quote = 1 if isinstance(value, str) else 0
    return start + quote + at[0], start + quote + at[1]


def name_of(section: str) -> str:
    """Return the name of a section in messages."""
    return "[global]" if section == "global" else f'node "{section}"'


def of(section: str) -> str:
    """Return " of …" with the name of a section in messages; empty for the top level."""
    return f" of {name_of(section)}" if section else ""


def show(value: object, depth: int = 0) -> str:
    """Return a value in about the notation of a TOML file."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(show(item, depth + 1) for item in value)}]" if depth < 4 else "[…]"
    if isinstance(value, Mapping):
        return "{…}"
    return repr(value)


def quoted(name: object) -> str:
    """Return a name in quotes."""
    return f'"{name}"' if isinstance(name, str) else repr(name)


def got(value: object) -> str:
    """Return a value with its type, at most MAX_SHOWN characters of it, for the end of a headline: "…, got …"."""
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= MAX_SHOWN else f'"{value[:MAX_SHOWN]}…"'
    text = repr(value)
    return f"{type(value).__name__} {text}" if len(text) <= MAX_SHOWN and "\n" not in text else type(value).__name__
