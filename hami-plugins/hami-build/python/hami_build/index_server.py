"""Serves an index to this machine only: pages as HTML, or as JSON for clients that accept it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from hami_build.index import SIMPLE

HOST = "127.0.0.1"
JSON = "application/vnd.pypi.simple.v1+json"


class Handler(SimpleHTTPRequestHandler):
    extensions_map = {".html": "text/html", ".json": JSON, "": "application/octet-stream"}  # noqa: RUF012

    def do_GET(self) -> None:
        page = Path(self.translate_path(self.path)) / "index.json"
        if self.path.endswith("/") and page.is_file() and JSON in self.headers.get("Accept", ""):
            self.path += page.name
        super().do_GET()

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")  # a file may be built again under the same name
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def server(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """Return a server bound to `port` of 127.0.0.1 (0: any free port), not yet running."""
    return ThreadingHTTPServer((HOST, port), functools.partial(Handler, directory=str(folder)))


def address(of: ThreadingHTTPServer) -> str:
    """Return the address for `pip --index-url`."""
    return f"http://{HOST}:{of.server_address[1]}/{SIMPLE}/"


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve `folder` while the block runs; the address is the value of `as`."""
    with server(folder) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield address(running)
        finally:
            running.shutdown()
            thread.join()
