"""Measures what one connection without a token costs a server, and how long others wait for it meanwhile.

    python tests/reliability/limits.py

It starts `hami serve` on 127.0.0.1 for each attack, which lasts a few seconds, and prints a table: the growth of the
largest memory of the server, and the longest answer of /v2/health/live.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

SECONDS = 3.0  # of each attack
POST = b"POST /v2/models/Identity/infer HTTP/1.1\r\nHost: localhost\r\n"
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"


def flood(port: int, first: bytes, again: bytes) -> None:
    """Send as long as the server reads, at most for some seconds."""
    end = time.monotonic() + SECONDS
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as client:
        client.sendall(first)
        while time.monotonic() < end:
            client.sendall(again)


def post(port: int, body: bytes, *headers: tuple[str, str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("POST", "/v2/models/Identity/infer", body, dict(headers))
        connection.getresponse().read()
    connection.close()


def numbers(count: int) -> bytes:
    entry = {"name": "x", "datatype": "FP32", "shape": [count], "data": [1.5] * count}
    return json.dumps({"inputs": [entry]}).encode()


CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
OPEN_CHUNK = b"Transfer-Encoding: chunked\r\n\r\n2;"
TRAILERS = b"".join(b"X%d: %b\r\n" % (number, b"t" * 1000) for number in range(60))
DATA = ["t" * 100_000, *range(20_000)]
MIXED = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [len(DATA)], "data": DATA}]}).encode()
# Made before the measurements: to make them keeps this process from measuring.
ONE_MB = numbers(200_000)
TEXT = b'{"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["%b"]}]}' % (b"\\u0001" * 1_700_000)
GZIPPED = gzip.compress(numbers(4_000_000))
WITH_TOKEN: dict[str, Callable[[int], None]] = {
    "trailers without end": lambda port: flood(port, POST + CHUNKS, TRAILERS),
    "pipelined requests": lambda port: flood(port, b"", LIVE * 1500),
    "a long text among numbers, 229 KB": lambda port: post(port, MIXED),
    "1 MB of JSON": lambda port: post(port, ONE_MB),
    "a text of 10 MB of control characters": lambda port: post(port, TEXT),
    "a chunk with extensions without end": lambda port: flood(port, POST + OPEN_CHUNK, b"x" * 1000),
    "gzip of 20 MB": lambda port: post(port, GZIPPED, ("Content-Encoding", "gzip")),
}
WITHOUT: dict[str, Callable[[int], None]] = {
    "a body of 60 MB without the token": lambda port: flood(
        port, POST + b"Content-Length: 62914560\r\n\r\n", b"\0" * (1 << 20)
    ),
    "trailers without the token": WITH_TOKEN["trailers without end"],
    "pipelined requests without the token": WITH_TOKEN["pipelined requests"],
}


def measure(attack: Callable[[int], None], *options: str) -> tuple[int, float]:
    """Return the growth of the largest memory in bytes, and the longest answer in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "token").write_text("secret")
        command = [sys.executable, "-m", "hami", "serve", "Identity", "--http", "0", *options]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                found = re.search(r":(\d+)$", server.stdout.readline().strip())
                assert found is not None
                port = int(found[1])
                longest(port, 0.5)
                before = memory(server.pid)
                attacker = threading.Thread(target=attack, args=(port,), daemon=True)
                attacker.start()
                stall = longest(port, SECONDS + 1)
                attacker.join(30)
                return memory(server.pid) - before, stall
            finally:
                server.kill()


def longest(port: int, seconds: float) -> float:
    """Ask whether the server lives, again and again; return the longest time of an answer."""
    end, found = time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        started = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(LIVE)
            client.recv(1 << 12)
        found = max(found, time.monotonic() - started)
    return found


def memory(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+)", text)
    assert found is not None
    return int(found[1]) << 10


def main() -> None:
    print("| attack of one connection | memory | longest answer of /v2/health/live |\n|---|---|---|")
    for attacks, options in ((WITH_TOKEN, ()), (WITHOUT, ("--token-file", "token"))):
        for name, attack in attacks.items():
            growth, stall = measure(attack, *options)
            print(f"| {name} | + {growth / 1e6:.0f} MB | {stall * 1000:.0f} ms |", flush=True)


if __name__ == "__main__":
    main()
