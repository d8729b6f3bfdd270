"""A web server that a console block starts with `uvicorn … &` and stops with `kill %1`."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_PAGES = "127.0.0.1:8000"  # the address of uvicorn without options, which the pages use
_STOP_S = 60  # limit for the end of a server


class Server:
    """A uvicorn process on a free port. Clients may connect at once: the socket listens before the process starts."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self._log = folder / "server.log"
        with socket.create_server(("127.0.0.1", 0)) as listening, self._log.open("w") as log:
            self._address = f"127.0.0.1:{listening.getsockname()[1]}"
            descriptor = listening.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "uvicorn", *arguments, "--fd", str(descriptor)],
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=folder,
            )

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
        orderly = status in (0, -signal.SIGTERM) and "Application shutdown complete" in log
        return None if orderly else f"status {status}\n{log}"
