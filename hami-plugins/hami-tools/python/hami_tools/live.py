"""Reads the pipes of another process of the same user, through the socket that the core opens there."""

from __future__ import annotations

import json
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hami import ConfigError
from hami.observe.node_stats import NodeStats

TIMEOUT_S = 5.0  # the answer needs no thread of the pipes, so it takes milliseconds


@dataclass(frozen=True)
class LiveThread:
    """A thread that runs a backend now."""

    thread: int
    """Its number in the system, as top -H shows it."""
    node: str
    backend: str
    seconds: float
    """How long it has been in the backend."""


@dataclass(frozen=True)
class LivePipe:
    """A pipe of another process at one moment."""

    description: Any
    """As `hami.Pipe.describe` returns it."""
    stats: dict[str, NodeStats]
    threads: tuple[LiveThread, ...]
    uptime_s: float
    running_ms: dict[str, float]
    """For each node: how long the batches that run now have been running; `compute_ms` does not contain them yet."""
    label: str = ""
    """What its program calls it, such as the name of a model."""


def processes() -> list[int]:
    """Return the processes of this user that have an open pipe."""
    found = {int(path.stem) for folder in _folders() for path in folder.glob("*.sock") if path.stem.isdecimal()}
    return sorted(pid for pid in found if _is_there(pid))


def read(pid: int) -> list[LivePipe]:
    """Return the pipes of a process.

    Raises:
        ConfigError: There is no such process, it belongs to another user, or it has no open pipe.
    """
    try:
        owner = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        raise ConfigError(f"there is no process {pid}; hami top without a number lists those with a pipe") from None
    if owner != os.geteuid():
        raise ConfigError(f"process {pid} belongs to another user; only its own user may look at its pipes")
    text = _answer_of(pid)
    if not text:
        raise ConfigError(
            f"process {pid} has no open pipe that it shows: it does not use hami, is building its pipe, has closed it, "
            "runs in another container, or has HAMI_TOP=0 in its environment"
        )
    return [
        LivePipe(
            pipe["description"],
            {name: NodeStats(values) for name, values in pipe["stats"].items()},
            tuple(LiveThread(**thread) for thread in pipe["threads"]),
            pipe["uptime_s"],
            pipe["running_ms"],
            pipe.get("label", ""),  # which older cores do not have
        )
        for pipe in json.loads(text)["pipes"]
    ]


def _is_there(pid: int) -> bool:
    connection = _connect(pid)
    if connection is not None:
        connection.close()
    return connection is not None


def _folders() -> list[Path]:
    shared = os.environ.get("XDG_RUNTIME_DIR", "")
    folders = [Path(shared, "hami")] if shared.startswith("/") else []
    return [*folders, Path(f"/tmp/hami-{os.geteuid()}")]


def _connect(pid: int) -> socket.socket | None:
    """Return a connection to the process; None if it has no socket."""
    for folder in _folders():
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(TIMEOUT_S)
        try:
            connection.connect(str(folder / f"{pid}.sock"))
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            connection.close()
            continue
        if struct.unpack("3i", peer)[:2] == (pid, os.geteuid()):
            return connection
        connection.close()
    return None


def _answer_of(pid: int) -> bytes:
    """Return what the process says; empty if it has no socket, or closed its last pipe at this moment."""
    connection = _connect(pid)
    if connection is None:
        return b""
    parts = []
    with connection:
        try:
            while part := connection.recv(1 << 16):
                parts.append(part)
        except TimeoutError:
            raise ConfigError(f"process {pid} does not answer within {TIMEOUT_S:.0f} s; is it stopped?") from None
        except OSError:  # it ended
            return b""
    return b"".join(parts)
