"""Reads a file or an address, with limits of size and time: a catalogue, or the page of a package index."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from hami.packages import Incomplete, bounded, read_file

TIMEOUT_S = 20.0  # for the connection, and for each read
TOTAL_S = 120.0  # for the whole answer: 64 MiB at half a megabyte per second


def is_address(source: str) -> bool:
    """Return whether a connection is needed to read it."""
    return source.startswith(("http://", "https://"))


def read(source: str, headers: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> bytes:
    """Return the content of a file, a file:// address or an address.

    Raises OSError if it cannot be read, and Incomplete if a part is missing, or if it is too large or comes too slowly.
    """
    return (
        _within(TOTAL_S, _download, source, headers or {}, timeout_s)
        if is_address(source)
        else read_file(path_of(source))
    )


def _within(limit_s: float, function: Callable[..., bytes], *arguments: object) -> bytes:
    """Return the result of a function. Raises Incomplete after `limit_s` seconds; its thread then ends by itself.

    The timeout of a connection is for each read: a server that sends a byte now and then would take days.
    """
    outcome: list[bytes | BaseException] = []

    def work() -> None:
        try:
            outcome.append(function(*arguments))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit_s)
    if not outcome:
        raise Incomplete(f"it did not end within {limit_s:g} s")
    result = outcome.pop()
    if isinstance(result, BaseException):
        try:
            raise result
        finally:
            del result  # the traceback refers to this frame
    return result


def path_of(source: str) -> Path:
    """Return the path of a file that is given by its path or as file://."""
    return Path(unquote(urlsplit(source).path) if source.startswith("file://") else source)


def reason(error: Exception) -> str:
    """Return why a source could not be read."""
    return str(getattr(error, "strerror", None) or getattr(error, "reason", None) or error)


def _download(address: str, headers: Mapping[str, str], timeout_s: float) -> bytes:
    import http.client
    import urllib.request

    parts = urlsplit(address)
    user, at, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(urlunsplit(parts._replace(netloc=host)), headers=dict(headers))
    if at:
        request.add_unredirected_header("Authorization", _basic(unquote(user)))  # not for another host
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            text = bounded(response.read)
            if response.length:  # fewer bytes came than the server announced
                raise Incomplete(f"{response.length} bytes of it are missing")
    except http.client.HTTPException as error:
        raise OSError(f"the server's answer is not complete ({type(error).__name__})") from error
    return text


def _basic(user: str) -> str:
    import base64

    return f"Basic {base64.b64encode(user.encode()).decode()}"
