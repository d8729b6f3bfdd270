"""Finds source distributions on the user's package indexes, and reads them: with the proxy and certificates of pip.

pip itself cannot fetch a source distribution without running its build backend, which downloads more.
"""

from __future__ import annotations

import base64
import http.client
import json
import netrc
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import Version

from hami_build.errors import Failure

JSON = "application/vnd.pypi.simple.v1+json"
ACCEPTED = f"{JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
MAX_BYTES = 64 << 20  # of a page or a file
RETRIES = 5  # as pip
TIMEOUT_S = 15.0  # as pip
FIRST_WAIT_S = 0.25  # before an answer is asked for again; each wait is twice as long


class Unreachable(Failure):
    """A place cannot be read; the text says why."""


@dataclass(frozen=True)
class Offer:
    """A file that an index or a folder has."""

    address: str
    sha256: str = ""  # as the index says; empty: it does not say


def sdists(place: str, project: str, version: str, of: Mapping[str, str]) -> list[Offer]:
    """Return the source distributions of one version that a place has.

    Raises:
        Unreachable: The place cannot be read.
    """
    return [offer for name, offer in _files(place, of) if _is_sdist(name, project, version)]


def _is_sdist(name: str, project: str, version: str) -> bool:
    try:
        found = parse_sdist_filename(name)
    except InvalidSdistFilename:
        return False
    return name.endswith(".tar.gz") and found == (canonicalize_name(project), Version(version))


def _files(place: str, of: Mapping[str, str]) -> Iterable[tuple[str, Offer]]:
    try:
        if (folder := _path(place)) is not None:
            page = folder / "index.html" if folder.is_dir() else folder
            if folder.is_dir() and not page.is_file():
                return [(file.name, Offer(file.resolve().as_uri())) for file in sorted(folder.iterdir())]
            place = page.resolve().as_uri()
    except (OSError, ValueError, RuntimeError) as error:  # the last: there is no home folder
        raise Unreachable(_why(error)) from error
    data, kind, final = _answer(place, of, ACCEPTED)
    try:
        return _of_json(data, final) if "json" in kind else _of_html(data, final)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Unreachable(f"its page is not one of a package index ({error})") from error


def _of_json(data: bytes, base: str) -> list[tuple[str, Offer]]:
    return [
        (str(file["filename"]), Offer(urljoin(base, file["url"]), str(file.get("hashes", {}).get("sha256", ""))))
        for file in json.loads(data)["files"]
    ]


def _of_html(data: bytes, base: str) -> list[tuple[str, Offer]]:
    page = _Links()
    page.feed(data.decode("utf-8", "replace"))
    found = []
    for link in page.found:
        address, _, fragment = urljoin(base, link).partition("#")
        said = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else ""
        found.append((unquote(urlsplit(address).path.rpartition("/")[2]), Offer(address, said)))
    return found


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def read(address: str, of: Mapping[str, str]) -> bytes:
    """Return the content of a file.

    Raises:
        Unreachable: It cannot be read, is not complete, or is too large.
    """
    return _answer(address, of)[0]


def _path(address: str) -> Path | None:
    """Return the path of a file or folder that is named by its path or as file://, None for another address."""
    if address.startswith("file://"):
        return Path(unquote(urlsplit(address).path))
    return None if "://" in address else Path(address).expanduser()


def _answer(address: str, of: Mapping[str, str], accept: str = "*/*") -> tuple[bytes, str, str]:
    """Return a file or page, its media type, and the address where it was in the end."""
    retries = of.get("retries", str(RETRIES))
    if not retries.isdecimal():
        raise Failure(f"pip's setting retries must be a number of at least 0, got {retries}")
    wait = FIRST_WAIT_S
    for attempt in range(int(retries[:3]), -1, -1):
        try:
            return _once(address, of, accept)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not attempt or not _may_pass(error):
                raise Unreachable(_why(error)) from error
        time.sleep(wait)
        wait *= 2
    raise AssertionError("the last attempt returns or raises")


def _once(address: str, of: Mapping[str, str], accept: str) -> tuple[bytes, str, str]:
    if (path := _path(address)) is not None:
        with path.open("rb") as file:
            return _bounded(file.read), "", address
    timeout_s = float(of.get("default-timeout", of.get("timeout", TIMEOUT_S)))
    with _opener(address, of).open(_request(address, accept), timeout=timeout_s) as response:
        data = _bounded(response.read)
        if response.length:  # fewer bytes came than the server announced
            raise http.client.IncompleteRead(data, response.length)
        return data, response.headers.get_content_type(), response.url


def _bounded(read_bytes: Callable[[int], bytes]) -> bytes:
    data = read_bytes(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise Unreachable(f"it has more than {MAX_BYTES >> 20} MiB")
    return data


def _may_pass(error: Exception) -> bool:
    """Return whether another attempt may succeed: after an error of the connection or of an overloaded server."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code >= 500 or error.code in (408, 429)
    if isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError):
        return False
    return not isinstance(error, (ValueError, FileNotFoundError, IsADirectoryError, PermissionError))


def _why(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return "it does not exist" if error.code == 404 else f"the server answered {error.code} {error.reason}"
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error) or type(error).__name__


def _opener(address: str, of: Mapping[str, str]) -> urllib.request.OpenerDirector:
    context = ssl.create_default_context(cafile=of.get("cert") or None)
    host = urlsplit(address)
    if {host.hostname, f"{host.hostname}:{host.port}"} & set(of.get("trusted-host", "").split()):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate := of.get("client-cert"):
        context.load_cert_chain(certificate)
    handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=context)]
    if proxy := of.get("proxy"):
        handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
    return urllib.request.build_opener(*handlers)


def _request(address: str, accept: str) -> urllib.request.Request:
    """Return a request; a user and password come from the address or from .netrc, and do not follow a redirection."""
    parts = urlsplit(address)
    user, at, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(urlunsplit(parts._replace(netloc=host)), headers={"Accept": accept})
    if not at and (known := _of_netrc(parts.hostname or "")):
        user, at = known, "@"
    if at:
        encoded = base64.b64encode(unquote(user).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {encoded}")
    return request


def _of_netrc(host: str) -> str:
    try:
        found = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return ""
    return f"{found[0]}:{found[2]}" if found else ""
