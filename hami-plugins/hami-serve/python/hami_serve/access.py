"""Access to the server: the token that every client sends."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import hami

OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")  # probes send no token
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


class RequireToken:
    """An ASGI application that answers 401 to requests without the token, and passes on all others."""

    def __init__(self, app: App, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            headers = dict(scope["headers"])
            if not is_allowed(self._token, headers.get(b"authorization", b"").decode("latin-1")):
                head = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
                await send({"type": "http.response.start", "status": 401, "headers": head})
                await send({"type": "http.response.body", "body": f'{{"error": "{MISSING}"}}'.encode()})
                return
        await self._app(scope, receive, send)
