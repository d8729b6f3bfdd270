"""No request of a server is lost, doubled or another client's among broken, leaving and slow clients.

    python tests/reliability/mixed.py --seconds 60

The clients are those of hami-serve's tests (mixed_load.py): over HTTP and gRPC, one in ten cancels its request, sends
what is broken, or leaves. The server is a process of its own; its memory and descriptors are looked at between rounds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from promise import Clock, Figures, keep, main

TESTS = Path(__file__).parents[2] / "hami-plugins" / "hami-serve" / "tests"
sys.path.insert(0, str(TESTS))

from mixed_load import mixed_load  # noqa: E402

ROUND = 2000  # requests
WARM = 5  # rounds, after which the memory is compared
GROWTH_MB = 20.0
LEAVING = {"leaves", "broken", "cancelled_call", "leaving_call", "broken_call"}
SLOW = {"in_pieces", "reads_slowly", "calls_in_pieces"}
SETTLE_S = 60.0  # for the server to see that clients have left
MODELS = """\
[any]
source = "Identity"
[bytes]
source = "Identity"
inputs = [{name = "x", datatype = "BYTES", shape = [1]}]
outputs = [{name = "y", datatype = "BYTES", shape = [1]}]
[python]  # that the native threads leave to Python
source = "Identity"
decoupled = true
"""


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def settled(pid: int, expected: int) -> int:
    """Return how many descriptors a process has, after waiting for it to close those above the expected number."""
    clock = Clock(SETTLE_S)
    while clock and descriptors(pid) > expected:
        time.sleep(0.01)
    return descriptors(pid)


def rounds(pid: int, address: dict[str, str], seconds: float) -> Figures:
    """Send rounds of requests, and compare the server after the first ones and after the last one."""
    ports = {name: int(address[name].rpartition(":")[2]) for name in ("http", "grpc")}
    seen: Counter[str] = Counter()
    before, idle, clock, number = 0.0, descriptors(pid), Clock(seconds), 0
    while clock or number <= WARM:
        seen += mixed_load(ports["http"], ROUND, number, ports["grpc"])
        number += 1
        if number == WARM:
            before = resident_mb(pid)
    growth = resident_mb(pid) - before
    left = settled(pid, idle) - idle
    keep(left <= 0, f"{left} descriptors are left of {seen.total()} requests")
    keep(growth <= GROWTH_MB, f"{seen.total()} requests: + {growth:.1f} MB, promised {GROWTH_MB}")
    return {
        "requests": seen.total(),
        "of clients that break off": sum(seen[kind] for kind in LEAVING),
        "of slow clients": sum(seen[kind] for kind in SLOW),
        "lost, doubled or mixed up": 0,  # else a round has raised an error
        "MB": round(growth, 1),
        "descriptors left": left,
    }


def run(seconds: float, strict: bool) -> Figures:
    """Send rounds of requests to a server of its own."""
    command = [sys.executable, "-m", "hami", "serve", "models.toml", "--http", "0", "--grpc", "0", "--json"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "models.toml").write_text(MODELS)
        log = Path(folder, "log")
        with (
            log.open("w") as errors,
            subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
        ):
            try:
                assert server.stdout is not None
                found = rounds(server.pid, json.loads(server.stdout.readline()), seconds)
            finally:
                server.terminate()
        _, traceback, fault = log.read_text().partition("Traceback")
        keep(not traceback, f"a client has caused a fault of the server: {fault[:2000]}")
        return found


if __name__ == "__main__":
    main(run, "no request is lost, doubled or another client's")
