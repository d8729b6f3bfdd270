#!/usr/bin/env bash
# Chromium 156, MJPEG (multipart/x-mixed-replace): a picture is shown when the head of the next part has arrived.
#
# A server that sends each JPEG with its Content-Length, and the boundary right after it, shows nothing until the next
# picture, and every picture one late: neither the length nor the boundary ends a part. With "Content-Type: …" and the
# empty line of the next part after the boundary, each picture is shown at once; the next one then has no length.
# Seen on 30 November 2026, x86-64, Debian 12, playwright 1.55.0. Needs `chromium`. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check playwright==1.55.0 pillow==12.0.0
"$work/env/bin/python" - <<'PY'
import io
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from PIL import Image
from playwright.sync_api import TimeoutError, sync_playwright

file = io.BytesIO()
Image.new("RGB", (64, 64), "red").save(file, "JPEG")
JPEG = file.getvalue()
end = threading.Event()
KIND = b"Content-Type: image/jpeg\r\n"
STREAMS = {
    "/boundary": b"--b\r\n" + KIND + b"Content-Length: %d\r\n\r\n" % len(JPEG) + JPEG + b"\r\n--b\r\n",
    "/next-head": b"--b\r\n" + KIND + b"\r\n" + JPEG + b"\r\n--b\r\n" + KIND + b"\r\n",
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        if self.path in STREAMS:
            self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=b")
            self.end_headers()
            self.wfile.write(STREAMS[self.path])
            end.wait()  # one picture, and no other
        else:
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f"<img src='/{self.path[2:]}'>".encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
with sync_playwright() as api:
    browser = api.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
    print("chromium", browser.version)
    shown = {}
    for path in STREAMS:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/?{path[1:]}", wait_until="domcontentloaded")
        try:
            page.wait_for_function("document.querySelector('img').naturalWidth === 64", timeout=5000)
            shown[path] = True
        except TimeoutError:
            shown[path] = False
        print(f"{path[1:]:10} the only picture is {'shown' if shown[path] else 'not shown'}")
    assert shown == {"/boundary": False, "/next-head": True}
    browser.close()
end.set()
PY
