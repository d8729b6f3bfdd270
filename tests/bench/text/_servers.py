"""Servers of /v1/embeddings, and a client with many connections in a process of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from _texts import varied
from _worker import by_threads

HERE = Path(__file__).resolve().parent
STARTS_S = 120.0
ENVIRONMENT = {**os.environ, "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}


def command(name: str, programs: Path, folder: Path, port: int) -> list[str]:
    """Return the command of a server; `programs` is the folder of programs of its environment."""
    if name == "hami":
        return [f"{programs}/hami", "serve", "embed", "--set", f"model={folder}", "--http", f"{port}"]
    if name == "mosec":
        return [f"{programs}/python", f"{HERE}/_mosec_server.py", "--port", f"{port}"]
    options = "--served-model-name embed --engine torch --device cpu --url-prefix /v1 --no-model-warmup"
    return [f"{programs}/infinity_emb", "v2", "--model-id", f"{folder}", "--port", f"{port}", *options.split()]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def post(connection: http.client.HTTPConnection, text: str) -> Any:
    body = json.dumps({"model": "embed", "input": text})
    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise OSError(f"status {answer.status}: {content[:200]!r}")
    return json.loads(content)["data"][0]["embedding"]


class Server:
    """A running server, and a client that measures it. Raises OSError if the server does not start."""

    def __init__(self, name: str, programs: Path, folder: Path, log: Path) -> None:
        self.port = free_port()
        with log.open("w") as file:
            self.process = subprocess.Popen(
                command(name, programs, folder, self.port),
                stdout=file,
                stderr=file,
                env={**ENVIRONMENT, "BENCH_MODEL": str(folder)},
                start_new_session=True,
            )
        try:
            self._wait(name, log)
        except BaseException:
            self.close()
            raise

    def _wait(self, name: str, log: Path) -> None:
        end = time.monotonic() + STARTS_S
        while True:
            try:
                post(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60), "one text")
                return
            except (OSError, http.client.HTTPException) as error:
                if self.process.poll() is not None or time.monotonic() > end:
                    last = log.read_text().strip().splitlines()[-1:]
                    raise OSError(f"{name} does not answer: {error}; {last}") from None
                time.sleep(0.5)

    def measure(self, seconds: float, count: int, vectors: str = "") -> dict[str, float]:
        command = [sys.executable, __file__, str(self.port), str(count), vectors]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise OSError(f"no answer within {seconds:.0f} s") from None
        if done.returncode:
            raise OSError(done.stderr.strip().splitlines()[-1])
        found: dict[str, float] = json.loads(done.stdout)
        return found

    def close(self) -> None:
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its workers too


def main(port: int, count: int, vectors: str) -> None:
    """Print the figures of 64 connections, or write the vectors of the texts to a file."""
    local = threading.local()

    def call(text: str) -> Any:
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        return post(local.connection, text)

    if vectors:
        np.save(vectors, np.asarray([call(text) for text in varied(count)], np.float32))
        print("{}")
    else:
        print(json.dumps(by_threads(call, varied(count), 64)))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
