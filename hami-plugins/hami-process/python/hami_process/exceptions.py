"""Exceptions on their way between processes: they keep their type where both can import it."""

from __future__ import annotations

import pickle
import traceback

import hami

from hami_process.errors import ChildTraceback

Encoded = tuple[bytes, str, str]


def encode_error(error: BaseException) -> Encoded:
    """Return the pickled exception, which may be empty; its text; and its traceback."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
    shown = f"{type(error).__module__}.{type(error).__qualname__}"
    try:
        shown = f"{shown}: {error}"
        data = pickle.dumps(error)
        if type(pickle.loads(data)) is not type(error):
            data = b""
    except Exception:  # it has no text, objects that cannot be pickled, or another constructor than it keeps arguments
        data = b""
    return data, shown, text


def decode_error(encoded: Encoded) -> BaseException:
    data, shown, text = encoded
    error: BaseException | None = None
    if data:
        try:
            error = pickle.loads(data)
        except Exception:  # a class that this process cannot import
            error = None
    if not isinstance(error, BaseException):
        error = hami.RequestError(shown)
    error.__cause__ = ChildTraceback(text)
    return error
