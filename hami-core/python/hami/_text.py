"""Text of other people: what UTF-8 cannot represent, what a terminal obeys instead of showing it, and near names."""

from __future__ import annotations

import os

from hami import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def is_text(text: str) -> bool:
    """Return whether UTF-8 can represent a str: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: os.PathLike[str] | str) -> str:
    """Return a text or path with escapes for what is not UTF-8: a byte of a path becomes \\xff, as in the core."""
    text = os.fspath(text)
    return text if is_text(text) else "".join(map(_escaped, text))


def _escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte, as os.fsdecode represents it
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char if is_text(char) else f"\\u{ord(char):04x}"


def visible(text: str) -> str:
    """Return a text with escapes for characters that a terminal does not show: controls, and marks of direction.

    A terminal obeys an escape sequence, which can change what the user has read before, or what they type next.
    """
    return text if text.isprintable() else "".join(char if char.isprintable() else _escape(char) for char in text)


def visible_lines(text: str) -> str:
    """Return a text of several lines in the same way; its line breaks and tabs stay."""
    return "".join(char if char in "\n\t" else visible(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


def did_you_mean(name: str, candidates: Iterable[str], *, quoted: bool = False, folder: str = "") -> str:
    """Return "; did you mean …?" with the candidates that are spelled like `name`; empty if there are none.

    `folder` is shown before each candidate.
    """
    near = _core.near_names(printable(name), list(filter(is_text, candidates)))
    return _core.did_you_mean([os.path.join(folder, candidate) for candidate in near], quoted=quoted)
