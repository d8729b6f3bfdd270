"""Access to the server: the token that every client sends, and the pages that a browser may call it from."""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import hami

from hami_serve.errors import short
from hami_serve.failures import log_rejected
from hami_serve.metrics import answers
from hami_serve.web_page import PAGES

OPEN_PATHS = {"/v2/health/live", "/v2/health/ready", *PAGES}  # probes send no token, nor does a browser for a page
ALLOW = "start the server with --allow-host NAME if this is meant, or with --token-file"
ALLOW_PAGE = "start the server with --cors ORIGIN if this is meant, with --allow-host NAME, or with --token-file"
SAFE = ("GET", "HEAD", "OPTIONS")  # methods that change nothing; pages of other sites cannot read their answers
MISSING = "this server needs a token: send the header Authorization: Bearer TOKEN"
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


def read_token(path: str | None) -> str | None:
    """Return the token in a file.

    Raises:
        ConfigError: The file cannot be read, or has no token.
    """
    if path is None:
        return None
    token = read(path, "--token-file").decode("utf-8", "replace").strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise hami.ConfigError(f'--token-file: "{path}" has no token; it holds one line of printable ASCII')
    return token


def read(path: str, option: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise hami.ConfigError(f'{option}: cannot read "{path}": {error.strerror}') from error


def is_allowed(token: str, authorization: str | None) -> bool:
    """Return whether the value of the header Authorization has the token; it takes the same time for any value."""
    kind, _, given = (authorization or "").partition(" ")
    return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


class Gate:
    """An ASGI application that rejects requests without the token, and passes on all others.

    Without a token, it rejects those that a browser sends for a page of another site: anybody may have written it, and
    it reaches every server that the user reaches. With a token this needs no check: a browser sends none by itself.
    """

    def __init__(
        self,
        app: App,
        token: str | None = None,
        hosts: Collection[str] = (),
        *,
        loopback: bool = False,
        origins: Collection[str] = (),
    ) -> None:
        """Wrap an application.

        Args:
            app: The application.
            token: The token that every request must have.
            hosts: Names of hosts that the server has, and whose pages may call it.
            loopback: Accept only these names and those of this machine. Else a name of another site that leads to
                this machine would make its pages those of the server.
            origins: Those of pages of other sites that may call it; `*` for all.
        """
        self._app = app
        self._token = token
        self._hosts = frozenset(map(str.lower, hosts))
        self._loopback = loopback
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
            if self._token is None:
                status, text = 403, self._foreign(scope["method"], headers)
            else:
                allowed = is_allowed(self._token, headers.get(b"authorization"))
                status, text = 401, "" if allowed else MISSING
            if text:
                log_rejected("HTTP", f"{scope['method']} {short(scope['path'])}", status, text)
                answers.count("HTTP", status)
                head = [(b"content-type", b"application/json")]
                head += [(b"www-authenticate", b"Bearer")] if status == 401 else []
                await send({"type": "http.response.start", "status": status, "headers": head})
                await send({"type": "http.response.body", "body": json.dumps({"error": text}).encode()})
                return
        await self._app(scope, receive, send)

    def _foreign(self, method: str, headers: Mapping[bytes, str]) -> str:
        """Return why a request may be that of a page of another site; "" if it is not."""
        host, origin, site = (headers.get(name, "") for name in (b"host", b"origin", b"sec-fetch-site"))
        name = host_of(host)
        if self._loopback and host and name not in self._hosts and not is_loopback(name):
            return (
                f'this server listens for this machine only, and the request is for the host "{short(name)}"; {ALLOW}'
            )
        if method in SAFE or not (origin or site) or host_of(origin.partition("://")[2]) in self._hosts:
            return ""
        if self._origins & {origin.lower(), "*"}:
            return ""
        same = site in ("same-origin", "none") if site else origin.partition("://")[2].lower() == host.lower()
        if same:
            return ""
        return f'the request comes from a page of another site, "{short(origin or site)}"; {ALLOW_PAGE}'


def host_of(place: str) -> str:
    """Return the name or address in `name:port`, in lower case."""
    if place.startswith("["):  # an address of IPv6
        return place[1:].partition("]")[0]
    return place.partition(":")[0].rstrip(".").lower()


def is_loopback(host: str) -> bool:
    """Return whether a name or an address means this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
