"""Text that UTF-8 cannot represent: halves of surrogate pairs, as which Python holds other bytes of paths."""

from __future__ import annotations

import os


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
