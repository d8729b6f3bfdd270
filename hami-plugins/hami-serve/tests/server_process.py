"""A server in a process of its own, which tests ask over HTTP."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port: int = unused.getsockname()[1]
        return port


@contextmanager
def running(
    command: Sequence[str], folder: Path, port: int, live: str = "/v2/health/live"
) -> Iterator[subprocess.Popen[str]]:
    """Run a command in a folder; yield its process as soon as the server says on `port` that it is live."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while True:
            with suppress(ConnectionRefusedError):
                assert ask(port, live) == (200, {"live": True})
                break
            assert process.poll() is None, process.stderr.read()
            threading.Event().wait(0.02)
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(port: int, path: str, body: str | None = None) -> tuple[int, dict]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST" if body else "GET", path, body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
