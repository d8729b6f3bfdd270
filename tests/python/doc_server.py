"""A web server that a console block starts with `uvicorn … &` or `hami serve … &` and stops with `kill %1`."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_PAGES = "127.0.0.1:8000"  # the address of both servers without options, which the pages use
_STOP_S = 60  # limit for the end of a server


class Server:
    """A server process on a free port. Clients may connect at once: its socket listens before this object exists."""

    def __init__(self, program: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self._log = folder / "server.log"
        self._end = {"uvicorn": "Application shutdown complete", "hami": ""}[program]
        start = self._start_uvicorn if program == "uvicorn" else self._start_hami
        with self._log.open("w") as log:
            start(arguments, {"env": environment, "cwd": folder, "stdin": subprocess.DEVNULL, "stderr": log})

    def _start_uvicorn(self, arguments: Sequence[str], options: dict[str, Any]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self._address = f"127.0.0.1:{listening.getsockname()[1]}"
            descriptor = listening.fileno()
            command = [sys.executable, "-m", "uvicorn", *arguments, "--fd", str(descriptor)]
            self._process = subprocess.Popen(command, pass_fds=[descriptor], stdout=options["stderr"], **options)

    def _start_hami(self, arguments: Sequence[str], options: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "hami", *arguments, "--http", "0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
        assert self._process.stdout is not None
        with self._process.stdout as output:
            line = output.readline()  # "serving … on http://ADDRESS"
        assert "http://" in line, f"the server does not start: {line}{self._log.read_text('utf-8')}"
        self._address = line.strip().rpartition("http://")[2]

    def address_in(self, argument: str) -> str:
        """Return an argument of a client with the address of this server instead of the one in the page."""
        return argument.replace(_PAGES, self._address)

    def stop(self) -> str | None:
        """End the server as `kill` does; return its log if it does not shut down in an orderly way."""
        self._process.terminate()
        try:
            status = self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        log = self._log.read_text("utf-8")
        orderly = status in (0, -signal.SIGTERM) and self._end in log
        return None if orderly else f"status {status}\n{log}"
