"""Compare `hami serve` with LitServe and mosec, on the same work over HTTP.

    python tests/bench/peers/servers.py DATA [--rounds 5] [--seconds 2] [--clients 16] [--python PYTHON]
    python tests/bench/peers/servers.py DATA --contenders hami,hami-grpc --works identity

The servers run alternately over several rounds. All get the same bytes: hami and mosec as the
body, LitServe as base64 in JSON, as it needs. The processor time is that of the server and all its processes, for each
request; other programs influence it less than the rate. The load comes from wrk, and over gRPC from h2load; it and the
server have processors of their own.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from _measure import about_this_machine  # noqa: E402
from _wire_load import Measured, apart, over_grpc, over_http, pinned, require_tools  # noqa: E402
from _works import Work, works  # noqa: E402

Load = Callable[[int, float, Sequence[int]], Measured]  # clients, seconds, processors
CONTENDERS = ("hami", "hami-grpc", "litserve", "mosec")
METHOD = "/inference.GRPCInferenceService/ModelInfer"
TICK = os.sysconf("SC_CLK_TCK")


def command_of(contender: str, name: str, port: int, given: argparse.Namespace, folder: Path) -> list[str]:
    if contender == "hami":
        return [sys.executable, "-m", "hami", "serve", str(folder / f"{name}.toml"), "--http", str(port)]
    if contender == "hami-grpc":
        return [*command_of("hami", name, 0, given, folder), "--grpc", str(port)]
    if contender == "litserve":
        return [given.python, "_litserve_server.py", str(given.data), name, str(port)]
    return [given.python, "_mosec_server.py", "--port", str(port), "--address", "127.0.0.1"]


def request_of(contender: str, name: str, payload: bytes) -> bytes:
    path, kind = "/predict", "application/octet-stream"
    if contender == "hami":
        path, kind = f"/v2/models/{name}/infer", "image/jpeg"
    if contender == "litserve":
        payload, kind = json.dumps({"data": base64.b64encode(payload).decode()}).encode(), "application/json"
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(payload)}\r\n\r\n"
    return head.encode() + payload


def answer_of(port: int, request: bytes) -> bytes:
    """Return the body of the answer; wait until the server listens."""
    last = "it does not listen"
    for _ in range(600):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
                client.sendall(request)
                answer = http.client.HTTPResponse(client)
                answer.begin()
                body = answer.read()
                if answer.status == 200:
                    return body
                last = f"status {answer.status}: {body[:200].decode(errors='replace')}"
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"the server does not answer: {last}")


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


def http_load(contender: str, name: str, payloads: list[bytes], port: int) -> tuple[str, Load]:
    """Return the answer to the first request, and the load over HTTP."""
    requests = [request_of(contender, name, payload) for payload in payloads]
    answer = answer_of(port, requests[0]).decode()
    return answer, lambda clients, seconds, cores: over_http(port, requests, clients, seconds, cores)


def grpc_load(name: str, payload: bytes, port: int) -> tuple[str, Load]:
    """Return the answer to a call with the payload as a tensor of bytes, and the load over gRPC."""
    import grpc
    from hami_serve.grpc_messages import message

    request = message("ModelInferRequest")(model_name=name)
    request.inputs.add(name="data", datatype="BYTES", shape=[1])
    request.raw_input_contents.append(len(payload).to_bytes(4, "little") + payload)
    text = request.SerializeToString()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        answer = channel.unary_unary(METHOD)(text, wait_for_ready=True, timeout=60)
    shown = str(message("ModelInferResponse").FromString(answer))
    return shown, lambda clients, seconds, cores: over_grpc(port, METHOD, text, len(answer), clients, seconds, cores)


def measure(contender: str, name: str, work: Work, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    mine, others = apart()
    command = pinned(command_of(contender, name, port, given, folder), mine)
    environment = {**os.environ, "DATA": str(given.data), "WORK": name}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, env=environment, start_new_session=True, cwd=HERE, **quiet)
    try:
        payloads = work.payloads()
        grpc = contender == "hami-grpc"
        answer, load = grpc_load(name, payloads[0], port) if grpc else http_load(contender, name, payloads, port)
        load(given.clients, given.seconds / 4, others)
        before = processor_seconds(server.pid)
        measured = load(given.clients, given.seconds, others)
        used = processor_seconds(server.pid) - before
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(server.pid, number)
                server.wait(10)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
    return {
        "answer": answer,
        "rate": measured.rate,
        "p50": measured.p50_ms,
        "cpu": 1000 * used / measured.answers,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder written by make_models.py and make_images.py")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--works", default="identity,jpeg")
    parser.add_argument("--contenders", default="hami,litserve,mosec", help=f"of {', '.join(CONTENDERS)}")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has LitServe and mosec")
    given = parser.parse_args()
    given.data = given.data.resolve()
    contenders = given.contenders.split(",")
    if not {"hami"} <= set(contenders) <= set(CONTENDERS):
        parser.error(f"--contenders must be hami and others of {', '.join(CONTENDERS)}; got {given.contenders}")
    require_tools("wrk", *["h2load"] * ("hami-grpc" in contenders))
    known = works(given.data)
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in given.works.split(","):
            keys = ", ".join(f"{key} = {json.dumps(value)}" for key, value in known[name].node.items())
            (folder / f"{name}.toml").write_text(f"{name} = {{{keys}}}\n")
        for _ in range(given.rounds):
            for name in given.works.split(","):
                for contender in contenders:
                    row = measure(contender, name, known[name], given, folder)
                    found.setdefault((name, contender), []).append(row)
    mine, others = apart()
    how = (
        f"{given.rounds} rounds, {given.seconds} s, {given.clients} clients; server on {len(mine)} processors, load on "
    )
    how += f"{len(others)}; load average {os.getloadavg()[0]:.1f}"
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
