"""Measures `hami serve` with perf_analyzer, the load generator of Triton.

    pip install "tritonclient<2.51" nvidia-cuda-runtime-cu12  # the wheel that has the program, and a library of it
    python tests/bench/serve_perf_analyzer.py [--program perf_analyzer] [--rounds 3]

The model is `Identity`, with one FP32 tensor as bytes in both directions. The processor time of the server is from
/proc, divided by the requests that the server counts, and depends less on other programs than the rest. Each
measurement takes three windows of a second: with a number of requests (`--request-count`), perf_analyzer sometimes
hangs.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from serve_load import SIZES, processor_seconds

TENSORS = """
inputs = [{name = "x", datatype = "FP32", shape = [-1]}]
outputs = [{name = "result", datatype = "FP32", shape = [-1]}]
"""
CASES = [("1 kB", 1), ("1 kB", 16), ("1 kB", 64), ("1 MB", 1), ("1 MB", 4)]


def measure(program: str, url: str, size: int, clients: int, folder: Path) -> dict[str, float]:
    """Return requests per second and latencies in µs."""
    protocol, _, address = url.partition("://")
    command = [program, "-m", "echo", "-u", address, "-i", protocol, "--shape", f"x:{size // 4}", "-f", "result.csv"]
    command += ["--concurrency-range", str(clients)]
    command += ["--measurement-interval", "1000", "--stability-percentage", "999", "--max-trials", "3"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    with (folder / "result.csv").open() as file:
        (row,) = csv.DictReader(file)
    return {"rate": float(row["Inferences/Second"]), "p50": float(row["p50 latency"]), "p99": float(row["p99 latency"])}


def requests_of(url: str) -> int:
    with urllib.request.urlopen(f"{url}/v2/models/echo/stats") as answer:
        (model,) = json.load(answer)["model_stats"]
    return int(model["inference_count"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="perf_analyzer")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "models/echo").mkdir(parents=True)
        (folder / "models/echo/1.toml").write_text('[echo]\nbackend = "Identity"\n')
        (folder / "models/echo/model.toml").write_text(TENSORS)
        command = [sys.executable, "-m", "hami", "serve", str(folder / "models"), "--http", "0", "--grpc", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        urls = [word for word in server.stdout.readline().split() if "://" in word]
        print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        print("| | requests | p50 | p99 | processor time of the server |\n|---|---|---|---|---|")
        try:
            for url in urls:
                for name, clients in CASES:
                    found = []
                    for _ in range(given.rounds):
                        before, counted = processor_seconds(server.pid), requests_of(urls[0])
                        row = measure(given.program, url, SIZES[name], clients, folder)
                        requests = requests_of(urls[0]) - counted
                        row["cpu"] = (processor_seconds(server.pid) - before) / requests * 1e6
                        found.append(row)
                    best = sorted(found, key=lambda row: row["rate"])[len(found) // 2]
                    print(
                        f"| {url.partition(':')[0]}, {name}, {clients} clients | {best['rate']:,.0f}/s "
                        f"| {best['p50']:,.0f} µs | {best['p99']:,.0f} µs | {best['cpu']:,.0f} µs |",
                        flush=True,
                    )
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
