"""Compare the doors of `hami serve` with each other, and with mosec, LitServe and a bare uvicorn, on identity.

    python tests/bench/peers/doors.py [--rounds 5] [--seconds 1] [--python PYTHON]

All servers run for the whole time, and are loaded alternately, by wrk and h2load on other processors. They send back
what they get: hami an FP32 tensor as bytes, LitServe base64 in JSON, the others the body.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from _measure import about_this_machine  # noqa: E402
from _wire_load import Measured, apart, over_grpc, over_http, pinned, require_tools  # noqa: E402
from serve_load import http_request  # noqa: E402
from servers import METHOD, answer_of, processor_seconds, request_of  # noqa: E402

KILOBYTE, MEGABYTE = 1 << 10, 1 << 20
IDLE = 10_000  # connections
SERVERS = ("native", "python", "mosec", "litserve", "uvicorn")
CELLS = [
    *(("http", KILOBYTE, clients, SERVERS) for clients in (1, 16, 64)),
    *(("grpc", KILOBYTE, clients, SERVERS[:2]) for clients in (16, 64)),
    *(("http", MEGABYTE, clients, SERVERS[:2]) for clients in (1, 4)),
]
Row = tuple[Measured, float]  # what was measured, and the processor time of the server in seconds


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def command_of(server: str, port: int, grpc: int, python: str) -> list[str]:
    if server in SERVERS[:2]:
        ports = ["--http", str(port), "--grpc", str(grpc)]
        return [sys.executable, "-m", "hami", "serve", "Identity", "--door", server, *ports]
    if server == "mosec":
        return [python, "_mosec_server.py", "--port", str(port), "--address", "127.0.0.1"]
    if server == "litserve":
        return [python, "_litserve_server.py", ".", "identity", str(port)]
    options = ["--no-access-log", "--log-level", "error", "--loop", "uvloop", "--http", "httptools"]
    return [python, "-m", "uvicorn", "_uvicorn_app:app", "--port", str(port), *options]


def request_to(server: str, size: int) -> bytes:
    if server in SERVERS[:2]:
        return http_request(size)
    return request_of(server, "identity", b"x" * size)


class Server:
    """A server that runs, on processors of its own."""

    def __init__(self, name: str, python: str) -> None:
        self.name = name
        self.port, self.grpc = free_port(), free_port()
        command = pinned(command_of(name, self.port, self.grpc, python), apart()[0])
        environment = {**os.environ, "DATA": ".", "WORK": "identity"}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, env=environment, start_new_session=True, cwd=HERE, **quiet)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def load(self, protocol: str, size: int, clients: int, seconds: float) -> Row:
        before = processor_seconds(self.process.pid)
        others = apart()[1]
        if protocol == "http":
            found = over_http(self.port, [request_to(self.name, size)], clients, seconds, others)
        else:
            found = over_grpc(self.grpc, METHOD, *call_of(size), clients, seconds, others)
        return found, processor_seconds(self.process.pid) - before

    def resident_mb(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def call_of(size: int) -> tuple[bytes, int]:
    """Return the message of a call, and the bytes of the answer's message."""
    from hami_serve.grpc_messages import message

    tensor = {"name": "x", "datatype": "FP32", "shape": [size // 4]}
    sent = message("ModelInferRequest")(model_name="Identity", inputs=[tensor], raw_input_contents=[bytes(size)])
    output = {**tensor, "name": "result"}
    answer = message("ModelInferResponse")(
        model_name="Identity", model_version="1", outputs=[output], raw_output_contents=[bytes(size)]
    )
    return sent.SerializeToString(), answer.ByteSize()


@contextlib.contextmanager
def running(python: str) -> Iterator[dict[str, Server]]:
    servers = {}
    try:
        for name in SERVERS:
            servers[name] = Server(name, python)
            answer_of(servers[name].port, request_to(name, KILOBYTE))
        yield servers
    finally:
        for each in servers.values():
            each.close()


def idle_mb(python: str) -> float:
    """Return the growth of a new server by idle connections, each of which has had an answer."""
    with contextlib.ExitStack() as stack:
        server = Server("native", python)
        stack.callback(server.close)
        answer_of(server.port, request_to("native", KILOBYTE))
        before = server.resident_mb()
        for _ in range(IDLE):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(KILOBYTE).startswith(b"HTTP/1.1 200")
        return server.resident_mb() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with mosec, LitServe and uvicorn")
    given = parser.parse_args()
    require_tools("wrk", "h2load")
    found: dict[tuple[str, int, int, str], list[Row]] = {}
    loads = []
    with running(given.python) as servers:
        for _ in range(given.rounds):
            for protocol, size, clients, names in CELLS:
                for name in names:
                    row = servers[name].load(protocol, size, clients, given.seconds)
                    found.setdefault((protocol, size, clients, name), []).append(row)
            loads.append(os.getloadavg()[0])
    idle = idle_mb(given.python)
    print(f"{about_this_machine()}; {given.rounds} rounds of {given.seconds} s; {time.strftime('%d %B %Y')};", end=" ")
    print(f"load average {min(loads):.1f} to {max(loads):.1f}\n")
    print("| load | server | requests/s | p50 | processor time | native / this |")
    print("|---|---|---|---|---|---|")
    for (protocol, size, clients, name), rows in found.items():
        ours = found[protocol, size, clients, "native"]
        ratios = sorted(our.rate / row.rate for (our, _), (row, _) in zip(ours, rows, strict=True))
        rate, p50 = (statistics.median(getattr(row, key) for row, _ in rows) for key in ("rate", "p50_ms"))
        spent = statistics.median(1e6 * used / row.answers for row, used in rows)
        kind = f"{'HTTP' if protocol == 'http' else 'gRPC'}, {'1 kB' if size == KILOBYTE else '1 MB'}, {clients}"
        shown = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} … {ratios[-1]:.2f})"
        print(f"| {kind} | {name} | {rate:,.0f} | {1000 * p50:,.0f} µs | {spent:,.0f} µs | {shown} |")
    print(f"\n{IDLE:,} idle connections: {idle:.1f} MB")


if __name__ == "__main__":
    main()
