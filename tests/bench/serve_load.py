"""Measures `hami serve` on this machine: latency, throughput, and processor time of the server for each request.

    python tests/bench/serve_load.py [--seconds 3] [--grpc]

The server and the clients are two processes. The clients send a prepared request with one FP32 tensor as bytes, over
connections that stay open, and read the whole answer. The model is `Identity`. The processor time of the server is from
/proc, and does not depend on other programs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

SIZES = {"1 kB": 1024, "1 MB": 1 << 20}
TICK = os.sysconf("SC_CLK_TCK")
Call = Callable[[], Awaitable[None]]
Make = Callable[[int, int], Awaitable[Call]]


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def http_request(size: int) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [size // 4], "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    lines = (
        "POST /v2/models/Identity/infer HTTP/1.1",
        "Host: 127.0.0.1",
        f"Inference-Header-Content-Length: {len(head)}",
        f"Content-Length: {len(head) + size}",
        "",
        "",
    )
    return "\r\n".join(lines).encode() + head + bytes(size)


async def http_call(port: int, size: int) -> Call:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    request = http_request(size)

    async def call() -> None:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = head.lower().partition(b"\ncontent-length: ")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))

    return call


async def grpc_call(port: int, size: int) -> Call:
    import grpc.aio
    from hami_serve.grpc_messages import message

    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)])
    method = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")  # bytes in, bytes out
    tensor = {"name": "x", "datatype": "FP32", "shape": [size // 4]}
    request = message("ModelInferRequest")(model_name="Identity", inputs=[tensor], raw_input_contents=[bytes(size)])
    data = request.SerializeToString()

    async def call() -> None:
        assert len(await method(data)) > size

    return call


async def load(
    make: Callable[[int, int], Awaitable[Call]], port: int, size: int, clients: int, seconds: float
) -> list[float]:
    """Run clients at once; return the sorted latencies."""
    calls = [await make(port, size) for _ in range(clients)]
    latencies: list[float] = []

    async def run(call: Call) -> None:
        await call()
        end = time.perf_counter() + seconds
        while (before := time.perf_counter()) < end:
            await call()
            latencies.append(time.perf_counter() - before)

    await asyncio.gather(*map(run, calls))
    return sorted(latencies)


async def in_process(seconds: float) -> list[float]:
    import hami
    import numpy

    latencies = []
    with hami.pipe("Identity") as pipe:
        data = numpy.zeros(256, numpy.float32)
        end = time.perf_counter() + seconds
        while (before := time.perf_counter()) < end:
            await pipe.acall({"data": data})
            latencies.append(time.perf_counter() - before)
    return sorted(latencies)


def row(name: str, latencies: list[float], seconds: float, cpu: float | None = None) -> None:
    p50, p99 = (latencies[int(share * (len(latencies) - 1))] * 1e6 for share in (0.5, 0.99))
    used = "-" if cpu is None else f"{cpu / len(latencies) * 1e6:.0f} µs"
    print(f"| {name} | {len(latencies) / seconds:,.0f}/s | {p50:,.0f} µs | {p99:,.0f} µs | {used} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--grpc", action="store_true")
    given = parser.parse_args()
    command = [sys.executable, "-m", "hami", "serve", "Identity", "--http", "0"]
    if given.grpc:
        command += ["--grpc", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    line = server.stdout.readline().split()
    ports = {url.partition(":")[0]: int(url.rpartition(":")[2]) for url in line if "://" in url}
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print("| | requests | p50 | p99 | processor time of the server |")
    print("|---|---|---|---|---|")
    try:
        row("in process, `acall`", asyncio.run(in_process(given.seconds)), given.seconds)
        for protocol, make in (("http", http_call), ("grpc", grpc_call)):
            if protocol not in ports:
                continue
            for name, size in SIZES.items():
                for clients in (1, 16, 64) if size < 1 << 20 else (1, 4):
                    before = processor_seconds(server.pid)
                    done = asyncio.run(load(make, ports[protocol], size, clients, given.seconds))
                    used = processor_seconds(server.pid) - before
                    row(f"{protocol}, {name}, {clients} clients", done, given.seconds, used)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
