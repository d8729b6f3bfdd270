"""Exceptions on their way between processes: they keep their type where both can import it."""

from __future__ import annotations

import pickle
import traceback

import hami

from hami_process.errors import ChildTraceback

Encoded = tuple[bytes, str, str]
MOST_PICKLED = 1 << 20  # bytes of an exception, so that one does not take the space of the answers of its batch
MOST_TEXT = 1 << 16  # characters of its text, and of its traceback


def encode_error(error: BaseException) -> Encoded:
    """Return the pickled exception, which may be empty; its text; and its traceback.

    It never raises: another request of the batch does not depend on what the exception of a backend does.
    """
    kind = type(error)
    shown = _name_of(kind)
    try:
        text = "".join(traceback.format_exception(kind, error, error.__traceback__)).rstrip()[-MOST_TEXT:]
    except BaseException as raised:
        text = f"{shown} (no traceback: {type(raised).__name__})"
    try:
        shown = f"{shown}: {error}"[:MOST_TEXT]
        data = pickle.dumps(error)
        if len(data) > MOST_PICKLED or type(pickle.loads(data)) is not kind:
            data = b""
    except BaseException:  # it has no text, objects that cannot be pickled, or other arguments than its constructor
        data = b""
    return data, shown, text


def _name_of(kind: type) -> str:
    """Return the name of a class with its module, if that is text. The metaclass is not asked."""
    name: str = type.__dict__["__qualname__"].__get__(kind)
    try:
        module = type.__dict__["__module__"].__get__(kind)
    except AttributeError:  # exec made the class without a module
        return name
    return f"{module}.{name}" if isinstance(module, str) else name


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
    BaseException.__dict__["__cause__"].__set__(error, ChildTraceback(text))  # its class may allow no attribute
    return error
