"""Load for a server, by wrk over HTTP/1.1 and by h2load over gRPC: a generator in Python ends at 30,000 requests/s.

Every client keeps a connection, and sends its next request as soon as an answer is complete.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).with_name("_wrk_requests.lua")
TIMEOUT_S = 30  # for one answer
GRPC_PREFIX = 5  # bytes before each message
PACKAGES = {"h2load": "nghttp2-client", "taskset": "util-linux", "wrk": "wrk"}


@dataclass(frozen=True)
class Measured:
    """What clients saw in a number of seconds."""

    rate: float  # answers per second
    p50_ms: float
    p99_ms: float
    answers: int


def require_tools(*programs: str) -> None:
    """End with what to install if one of `programs` is missing."""
    if missing := [program for program in ("taskset", *programs) if not shutil.which(program)]:
        packages = " ".join(PACKAGES[program] for program in missing)
        raise SystemExit(f"{' and '.join(missing)} not found; on Debian and Ubuntu: apt install {packages}")


def apart() -> tuple[list[int], list[int]]:
    """Return the processors of the server and those of the load: a quarter of those that this process may use."""
    allowed = sorted(os.sched_getaffinity(0))
    count = max(1, len(allowed) // 4)
    return (allowed[:-count], allowed[-count:]) if len(allowed) > 1 else (allowed, allowed)


def pinned(command: Sequence[str], cores: Sequence[int]) -> list[str]:
    """Return a command that runs on these processors."""
    return ["taskset", "--cpu-list", ",".join(map(str, cores)), *command]


def over_http(port: int, requests: Sequence[bytes], clients: int, seconds: float, cores: Sequence[int]) -> Measured:
    """Send `requests`, complete with their heads, in turn over `clients` connections of HTTP/1.1.

    Raises:
        RuntimeError: An answer had another status than 2xx or 3xx, or none came.
    """
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"".join(b"%d\n%b" % (len(each), each) for each in requests))
        file.flush()
        options = ["--threads", str(threads(clients, cores)), "--connections", str(clients)]
        options += ["--duration", f"{whole(seconds)}s", "--timeout", f"{TIMEOUT_S}s", "--script", str(SCRIPT)]
        text = run(["wrk", *options, f"http://127.0.0.1:{port}/", "--", file.name], cores)
    found = json.loads(text.splitlines()[-1])
    if found["failed"] or found["lost"] or not found["answers"]:
        raise RuntimeError(
            f"of {found['answers']} answers, {found['failed']} had an error as status; {found['lost']} did not come"
        )
    rate = found["answers"] * 1e6 / found["micros"]
    return Measured(rate, found["p50_us"] / 1000, found["p99_us"] / 1000, found["answers"])


def over_grpc(
    port: int, method: str, message: bytes, answer_size: int, clients: int, seconds: float, cores: Sequence[int]
) -> Measured:
    """Call a method with one message, one call at a time on each of `clients` connections of HTTP/2.

    `answer_size` are the bytes of an answer's message: calls that fail have none, and their HTTP status is 200 too.

    Raises:
        RuntimeError: A call failed, or answers have other sizes.
    """
    with tempfile.TemporaryDirectory() as folder:
        body, log = Path(folder, "body"), Path(folder, "log")
        body.write_bytes(struct.pack(">BI", 0, len(message)) + message)
        options = [
            "--clients",
            str(clients),
            "--threads",
            str(threads(clients, cores)),
            "--max-concurrent-streams",
            "1",
        ]
        options += ["--duration", str(whole(seconds)), "--data", str(body), "--log-file", str(log)]
        options += ["--header", "content-type: application/grpc", "--header", "te: trailers"]
        text = run(["h2load", *options, f"http://127.0.0.1:{port}{method}"], cores)
        micros = sorted(int(line.split()[2]) for line in log.read_text().splitlines())
    answers = int(re.findall(r" (\d+) succeeded", text)[0])
    data = int(re.findall(r"\((\d+)\) data", text)[0])
    if not answers or not re.search(r" 0 failed, 0 errored, 0 timeout", text):
        raise RuntimeError(f"h2load: {next(line for line in text.splitlines() if line.startswith('requests:'))}")
    # h2load counts what has come of answers that were not complete at the end, at most one for each client.
    size = answer_size + GRPC_PREFIX
    if not 0 <= data - answers * size <= clients * size:
        raise RuntimeError(f"{answers} answers of {size} bytes have {data} bytes: some calls failed")
    middle, late = micros[len(micros) // 2], micros[len(micros) * 99 // 100]
    return Measured(answers / whole(seconds), middle / 1000, late / 1000, answers)


def threads(clients: int, cores: Sequence[int]) -> int:
    return min(len(cores), clients)


def whole(seconds: float) -> int:
    """Return the seconds rounded up, as both programs count them."""
    return max(1, math.ceil(seconds))


def run(command: Sequence[str], cores: Sequence[int]) -> str:
    done = subprocess.run(pinned(command, cores), capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.strip():
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout
