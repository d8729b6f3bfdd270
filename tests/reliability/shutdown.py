"""A server under load that gets SIGTERM answers each request that it has received, and ends.

    python tests/reliability/shutdown.py --seconds 60

Each second server has two workers. Clients of HTTP and of gRPC send one request after the other over connections of
their own, until they are refused. A request is lost if it was sent, and its answer is not 200. A new connection that is
refused is not a lost request.
"""

from __future__ import annotations

import http.client
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing

import grpc
from hami_serve.grpc_messages import message
from promise import Clock, Figures, keep, main

CLIENTS = 32  # of each protocol
NOT_EPHEMERAL = 10_000, 30_000  # ports that no other program gets as free ones when the server has ended
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]})
INPUT = {"name": "x", "datatype": "INT8", "shape": [1], "contents": {"int_contents": [1]}}
MESSAGE = message("ModelInferRequest")(model_name="Identity", inputs=[INPUT]).SerializeToString()


class Round:
    """One server under load, and its end."""

    def __init__(self, workers: int) -> None:
        self.sent: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._warm = threading.Semaphore(0)
        http_port, grpc_port = random.sample(range(*NOT_EPHEMERAL), 2)
        command = [sys.executable, "-m", "hami", "serve", "Identity", "--workers", str(workers)]
        command += ["--http", str(http_port), "--grpc", str(grpc_port)]
        with (
            tempfile.TemporaryDirectory() as folder,
            subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server,
        ):
            assert server.stdout is not None
            assert re.match("serving", server.stdout.readline())
            kinds = [(self._http, http_port), (self._grpc, grpc_port)] * CLIENTS
            threads = [threading.Thread(target=kind, args=(port,)) for kind, port in kinds]
            for thread in threads:
                thread.start()
            for _ in threads:
                self._warm.acquire()
            began = time.monotonic()
            server.send_signal(signal.SIGTERM)
            self.status = server.wait(120)
            self.seconds = time.monotonic() - began
            for thread in threads:
                thread.join()

    def _note(self, protocol: str, lost: str | None, number: int) -> None:
        with self._lock:
            self.sent[protocol] += 1
            if lost is not None:
                self.lost[f"{protocol}: {lost}"] += 1
        if number == 10:
            self._warm.release()

    def _http(self, port: int) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            for number in range(1 << 30):
                try:
                    if connection.sock is None:
                        connection.connect()
                except OSError:  # refused
                    return
                try:
                    connection.request("POST", "/v2/models/Identity/infer", BODY)
                    answer = connection.getresponse()
                    answer.read()
                    self._note("HTTP", None if answer.status == 200 else str(answer.status), number)
                except (OSError, http.client.HTTPException) as error:
                    self._note("HTTP", type(error).__name__, number)
                    return

    def _grpc(self, port: int) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            for number in range(1 << 30):
                try:
                    infer(MESSAGE, timeout=60)
                    self._note("gRPC", None, number)
                except grpc.RpcError as error:
                    if error.code() is not grpc.StatusCode.UNAVAILABLE or "connect" not in error.details():
                        self._note("gRPC", error.code().name, number)
                    return


def run(seconds: float, strict: bool) -> Figures:
    """End one server after the other, of one worker and of two, at least one of each."""
    clock, rounds = Clock(seconds), list[Round]()
    while clock or len(rounds) < 2:
        rounds.append(Round(workers=1 + len(rounds) % 2))
        keep(not rounds[-1].lost, f"requests are lost: {dict(rounds[-1].lost)} of {dict(rounds[-1].sent)}")
        keep(rounds[-1].status == 0, f"a server under load ended with {rounds[-1].status}")
    return {
        "ends of servers": len(rounds),
        **{f"requests by {name}": sum(each.sent[name] for each in rounds) for name in ("HTTP", "gRPC")},
        "lost": 0,
        "s of the longest end": round(max(each.seconds for each in rounds), 1),
    }


if __name__ == "__main__":
    main(run, "a server answers what it has received before it ends")
