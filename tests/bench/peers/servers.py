"""Compare `hami serve` with LitServe and mosec, on the same work over HTTP.

    python tests/bench/peers/servers.py DATA [--rounds 5] [--seconds 2] [--clients 16] [--python PYTHON]

The servers run alternately over several rounds. All get the same bytes: hami and mosec as the
body, LitServe as base64 in JSON, as it needs. The processor time is that of the server and all its processes, for each
request; other programs influence it less than the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from _measure import about_this_machine  # noqa: E402
from _works import Work, works  # noqa: E402

CONTENDERS = ("hami", "litserve", "mosec")
TICK = os.sysconf("SC_CLK_TCK")


def command_of(contender: str, name: str, port: int, given: argparse.Namespace, folder: Path) -> list[str]:
    if contender == "hami":
        return [sys.executable, "-m", "hami", "serve", str(folder / f"{name}.toml"), "--http", str(port)]
    if contender == "litserve":
        return [given.python, "_litserve_server.py", str(given.data), name, str(port)]
    return [given.python, "_mosec_server.py", "--port", str(port), "--address", "127.0.0.1"]


def request_of(contender: str, name: str, payload: bytes) -> bytes:
    path, kind = "/predict", "application/octet-stream"
    if contender == "hami":
        path, kind = f"/v2/models/{name}/infer", "image/jpeg"
    if contender == "litserve":
        payload, kind = json.dumps({"data": base64.b64encode(payload).decode()}).encode(), "application/json"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(payload)}\r\n\r\n"
    return head.encode() + payload


def answer_of(port: int, request: bytes) -> bytes:
    """Return the body of the answer; wait until the server listens."""
    for _ in range(600):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
                client.sendall(request)
                answer = http.client.HTTPResponse(client)
                answer.begin()
                body = answer.read()
                if answer.status == 200:
                    return body
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError("the server does not answer")


def processor_seconds(root: int) -> float:
    """Return the processor time of a process and its descendants that run."""
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            used[int(entry.name)] = int(fields[11]) + int(fields[12])
    total, pending = 0, [root]
    while pending:
        process = pending.pop()
        total += used.get(process, 0)
        pending += children.get(process, [])
    return total / TICK


async def load(port: int, requests: list[bytes], clients: int, seconds: float) -> list[float]:
    """Send requests over connections that stay open; return the latencies."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            number += 1
            before = time.perf_counter()
            writer.write(requests[number % len(requests)])
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert head.startswith(b"http/1.1 200"), head
            await reader.readexactly(int(head.partition(b"\ncontent-length: ")[2].partition(b"\r\n")[0]))
            latencies.append(time.perf_counter() - before)
        writer.close()

    await asyncio.gather(*map(client, range(clients)))
    return sorted(latencies)


def measure(contender: str, name: str, work: Work, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    requests = [request_of(contender, name, payload) for payload in work.payloads()]
    command = command_of(contender, name, port, given, folder)
    environment = {**os.environ, "DATA": str(given.data), "WORK": name}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, env=environment, start_new_session=True, cwd=HERE, **quiet)
    try:
        answer = answer_of(port, requests[0])
        asyncio.run(load(port, requests, given.clients, given.seconds / 4))
        before = processor_seconds(server.pid)
        latencies = asyncio.run(load(port, requests, given.clients, given.seconds))
        used = processor_seconds(server.pid) - before
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(server.pid, number)
                server.wait(10)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
    return {
        "answer": answer.decode(),
        "rate": len(latencies) / given.seconds,
        "p50": 1000 * latencies[len(latencies) // 2],
        "cpu": 1000 * used / len(latencies),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder written by make_models.py and make_images.py")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--works", default="identity,jpeg")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has LitServe and mosec")
    given = parser.parse_args()
    given.data = given.data.resolve()
    known = works(given.data)
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in given.works.split(","):
            keys = ", ".join(f"{key} = {json.dumps(value)}" for key, value in known[name].node.items())
            (folder / f"{name}.toml").write_text(f"{name} = {{{keys}}}\n")
        for _ in range(given.rounds):
            for name in given.works.split(","):
                for contender in CONTENDERS:
                    row = measure(contender, name, known[name], given, folder)
                    found.setdefault((name, contender), []).append(row)
    how = f"{given.rounds} rounds, {given.seconds} s, {given.clients} clients; load {os.getloadavg()[0]:.1f}"
    print(f"{about_this_machine()}; {how}\n")
    print("| work | server | requests/s | p50 | processor time | rate of hami / this | time of this / hami |")
    print("|---|---|---|---|---|---|---|")
    for (name, contender), rows in found.items():
        ours = found[name, "hami"]
        middle = {key: statistics.median(row[key] for row in rows) for key in ("rate", "p50", "cpu")}
        rates = statistics.median(our["rate"] / row["rate"] for our, row in zip(ours, rows, strict=True))
        times = statistics.median(row["cpu"] / our["cpu"] for our, row in zip(ours, rows, strict=True))
        print(
            f"| {name} | {contender} | {middle['rate']:,.0f} | {middle['p50']:.2f} ms | {middle['cpu']:.3f} ms "
            f"| {rates:.2f} | {times:.2f} |"
        )
    for (name, contender), rows in found.items():
        print(f"{name} {contender}: {rows[0]['answer'][:200]}", file=sys.stderr)


if __name__ == "__main__":
    main()
