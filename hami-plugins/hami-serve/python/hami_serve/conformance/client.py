"""The client of the checks: it sends exactly the given bytes, and reports exactly the received ones."""

from __future__ import annotations

import http.client
import json
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import hami

TIMEOUT_S = 30.0
HEADER_LENGTH = "Inference-Header-Content-Length"


@dataclass(frozen=True)
class Answer:
    """An answer of the server."""

    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        """The JSON of the body, or of the part before its tensors."""
        length = self.headers.get(HEADER_LENGTH.lower())
        return json.loads(self.body[: int(length)] if length else self.body)

    @property
    def tail(self) -> bytes:
        """The bytes after the JSON."""
        length = self.headers.get(HEADER_LENGTH.lower())
        return self.body[int(length) :] if length else b""


class Client:
    """Sends requests to one server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise hami.ConfigError(f'the URL of a server is such as http://127.0.0.1:8000, got "{url}"')
        self.host, self.port = parts.hostname, parts.port or 80
        self.prefix = parts.path.rstrip("/")

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)

    def socket(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=TIMEOUT_S)

    def send(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """Send a request on a new connection; a dict or a list is sent as JSON."""
        connection = self.connect()
        try:
            return self.send_on(connection, method, path, body, headers)
        finally:
            connection.close()

    def send_on(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        kind = {"Content-Type": "application/json"} if data is not None else {}
        connection.request(method, self.prefix + path, data, {**kind, **(headers or {})})
        answer = connection.getresponse()
        content = answer.read()
        return Answer(answer.status, {key.lower(): value for key, value in answer.getheaders()}, content)

    def get(self, path: str) -> Answer:
        return self.send("GET", path)

    def infer(self, model: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
        return self.send("POST", f"/v2/models/{quote(model, safe='')}/infer", body, headers)

    def infer_binary(self, model: str, head: dict[str, Any], tail: bytes, length: int | None = None) -> Answer:
        data = json.dumps(head).encode()
        headers = {
            "Content-Type": "application/octet-stream",
            HEADER_LENGTH: str(len(data) if length is None else length),
        }
        return self.infer(model, data + tail, headers)
