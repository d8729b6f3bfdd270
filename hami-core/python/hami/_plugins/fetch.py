"""Reads a file or an address, with limits of size and time: a catalogue, or the page of a package index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

MAX_BYTES = 64 << 20  # a catalogue of some thousand plugins has a few megabytes
TIMEOUT_S = 20.0  # for the connection, and for each read


class Incomplete(ValueError):
    """The file or the answer is cut off, or larger than the limit."""


def is_address(source: str) -> bool:
    """Return whether a connection is needed to read it."""
    return source.startswith(("http://", "https://"))


def read(source: str, headers: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> bytes:
    """Return the content of a file, a file:// address or an address.

    Raises OSError if it cannot be read, and Incomplete if a part is missing or if it is too large.
    """
    text = _download(source, headers or {}, timeout_s) if is_address(source) else path_of(source).read_bytes()
    if len(text) > MAX_BYTES:
        raise Incomplete(f"it has more than {MAX_BYTES >> 20} MiB")
    return text


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
            text: bytes = response.read(MAX_BYTES + 1)
            if response.length:  # fewer bytes came than the server announced
                raise Incomplete(f"{response.length} bytes of it are missing")
    except http.client.HTTPException as error:
        raise OSError(f"the server's answer is not complete ({type(error).__name__})") from error
    return text


def _basic(user: str) -> str:
    import base64

    return f"Basic {base64.b64encode(user.encode()).decode()}"
