"""LivePage: a sink that shows the frames with their results in a browser, as MJPEG."""

from __future__ import annotations

import html
import json
import re
import secrets
import select
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import cv2

from hami_vision.drawing import annotate
from hami_vision.sources import Frame
from hami_vision.webhook import message_of

_WAIT = 1.0  # seconds without a frame after which a viewer's thread looks whether the viewer has left
_POLICY = (
    "default-src 'none'; img-src 'self'; connect-src 'self'; style-src 'nonce-{}'; frame-ancestors 'none'; "
    "base-uri 'none'"
)
_STYLE = """body { font: 16px system-ui, sans-serif; margin: 1rem; background: #fff; color: #1a1a1a }
img { max-width: 100%; background: #ddd } nav a { margin-right: 1rem; color: #0645ad }
a[aria-current] { font-weight: bold } :focus-visible { outline: 3px solid #0645ad }"""


class LivePage:
    """Serve a page with the newest frame of each source: open `address` in a browser.

    The page loads nothing from elsewhere and has no script. `/frames?source=NAME` is the MJPEG stream, and
    `/results?source=NAME` the results as server-sent events of JSON. A frame is drawn and encoded for the first
    viewer of it.

    Args:
        port: 0: any free one.
        host: Address to listen at. The default serves this machine only. The page asks for no password, so every
            machine that can connect to another address sees the frames.

    Raises:
        OSError: The port is taken.
        OverflowError: It is not from 0 to 65535.
    """

    def __init__(self, port: int = 8088, host: str = "127.0.0.1") -> None:
        self._newest: dict[str, _Shown] = {}
        self._changed = threading.Condition()
        self._is_closed = False
        self.host = host
        page = self

        class Handler(_Handler):
            live = page

        self._server = _Server((host, port), Handler)
        self.address = f"http://{host}:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="live page", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # no thread is left
            self._server.server_close()
            raise

    def __call__(self, frame: Frame, result: Any) -> None:
        """Show a frame."""
        with self._changed:
            self._newest[frame.source] = _Shown(frame, result)
            self._changed.notify_all()

    def close(self) -> None:
        """End the streams and the server."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> LivePage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def names(self) -> list[str]:
        """Return the names of the sources seen so far."""
        with self._changed:
            return list(self._newest)

    def shown(self, source: str) -> Iterator[_Shown | None]:
        """Yield the newest frame of a source, each once, until the page is closed; None after a second without one."""
        last: _Shown | None = None
        while True:
            with self._changed:
                is_new = self._changed.wait_for(partial(self._has_other, source, last), _WAIT)
                if self._is_closed:
                    return
                newest = self._newest.get(source)
            last = newest
            yield newest if is_new else None

    def _has_other(self, source: str, last: _Shown | None) -> bool:
        return self._is_closed or self._newest.get(source) is not last


class _Shown:
    """One frame, drawn and encoded once, for the first viewer."""

    def __init__(self, frame: Frame, result: Any) -> None:
        self.frame, self.result = frame, result
        self._lock = threading.Lock()
        self._jpeg: bytes | None = None

    def jpeg(self) -> bytes:
        with self._lock:
            if self._jpeg is None:
                self._jpeg = cv2.imencode(".jpg", annotate(self.result, self.frame.image))[1].tobytes()
            return self._jpeg


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


class _Handler(BaseHTTPRequestHandler):
    live: LivePage
    timeout = 10  # seconds for a request line, and for a viewer that takes no data

    def do_GET(self) -> None:
        place = urllib.parse.urlsplit(self.path)
        source = dict(urllib.parse.parse_qsl(place.query)).get("source", "")
        if not self._is_own_host():
            return self.send_error(403, "the page is not served under this name")
        if place.path == "/":
            return self._page(source)
        if place.path == "/favicon.ico":  # browsers ask for it, and note an error if it is missing
            return self._head("image/x-icon", status=204)
        if place.path not in ("/frames", "/results"):
            return self.send_error(404)
        if source not in self.live.names():
            return self.send_error(404, "no source of this name has a frame")
        try:
            self._frames(source) if place.path == "/frames" else self._results(source)
        except (ConnectionError, TimeoutError):  # the viewer has left
            self.close_connection = True
        return None

    def _is_own_host(self) -> bool:
        """Refuse names of other sites that lead here, whose scripts could look otherwise (DNS rebinding)."""
        host = self.live.host
        name = re.sub(r":\d*$", "", self.headers.get("Host", ""))
        return not (host.startswith("127.") or host == "localhost") or name in (host, "127.0.0.1", "localhost")

    def _page(self, source: str) -> None:
        names, nonce = self.live.names(), secrets.token_hex(16)
        chosen = source if source in names else next(iter(names), "")
        current = {chosen: " aria-current=page"}
        links = "".join(
            f'<a href="/?source={urllib.parse.quote(name)}"{current.get(name, "")}>{html.escape(name)}</a>'
            for name in names
        )
        picture = f'<img src="/frames?source={urllib.parse.quote(chosen)}" alt="{html.escape(chosen)}, live">'
        waiting = '<meta http-equiv="refresh" content="1">'
        body = f"<nav>{links}</nav>{picture}" if names else "<p>Waiting for the first frame.</p>"
        content = (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(chosen) or "Live"}</title>'
            f'{"" if names else waiting}<style nonce="{nonce}">{_STYLE}</style></head><body>{body}</body></html>'
        ).encode()
        self._head(
            "text/html; charset=utf-8",
            {"Content-Length": str(len(content)), "Content-Security-Policy": _POLICY.format(nonce)},
        )
        self.wfile.write(content)

    def _frames(self, source: str) -> None:
        self._head("multipart/x-mixed-replace; boundary=frame")
        head = b"--frame\r\nContent-Type: image/jpeg\r\n\r\n"
        self.wfile.write(head)
        for shown in self._shown(source):
            # Chromium shows a picture when it has the head of the next one, so that this one follows at once.
            self.wfile.write(shown.jpeg() + b"\r\n" + head)

    def _results(self, source: str) -> None:
        self._head("text/event-stream")
        for shown in self._shown(source):
            self.wfile.write(b"data: " + json.dumps(message_of(shown.frame, shown.result)).encode() + b"\n\n")

    def _shown(self, source: str) -> Iterator[_Shown]:
        """Yield the frames of a source until the viewer leaves."""
        for shown in self.live.shown(source):
            if shown is not None:
                yield shown
            elif select.select([self.connection], [], [], 0)[0] and not self.connection.recv(1, socket.MSG_PEEK):
                return

    def _head(self, kind: str, more: dict[str, str] | None = None, status: int = 200) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Cache-Control": "no-store", **(more or {})}.items():
            self.send_header(name, value)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Write no line for each request: the terminal belongs to the program."""
