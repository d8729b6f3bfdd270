"""The error of this package."""

from __future__ import annotations


def shown(text: str) -> str:
    """Return a text for a terminal, which obeys no escape sequence in it: names of files come from other people."""
    return "".join(char if char.isprintable() or char in "\n\t" else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


def reason(error: Exception) -> str:
    """Return in one line why a file of another author cannot be checked: libraries raise many kinds for it."""
    text = " ".join(str(error).split())
    return f"cannot be checked: {type(error).__name__}{': ' if text else ''}{text}"


class Failure(Exception):
    """An error that is shown to the user without a traceback."""
