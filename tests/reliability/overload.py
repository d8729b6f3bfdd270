"""Measure how many requests are answered in time when more arrive than a node can answer.

    python tests/reliability/overload.py                        HAMi and a worker behind a bounded queue.Queue
    python tests/reliability/overload.py --shares               the shares of two callers, and the time afterwards
    python tests/reliability/overload.py --graph                two nodes of HAMi in a row
    python tests/reliability/overload.py --peers PYTHON         also mosec and LitServe, from the environment of PYTHON

A request takes 20 ms, so that 50 per second are possible. Requests arrive at random moments; each is useful if its
answer is there before its timeout. All systems run in turns, in every round, with the same arrivals, for which
`possible` is what a worker without delays answers. mosec and LitServe
are servers: their requests travel over HTTP on this machine, and their own timeout is that of the requests.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import queue
import random
import signal
import socket
import statistics
import subprocess
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hami

SERVICE_MS = 20
SERVICE_S = SERVICE_MS / 1000
QUEUE_SIZE = 64
WARM_UP_S = 1.0
Send = Callable[[float, Callable[[], None]], None]  # sends a request with this timeout; calls back when it is answered

MOSEC = """
import time
from mosec import Server, Worker
class Sleep(Worker):
    def forward(self, data):
        time.sleep({service})
        return b"ok"
    def serialize(self, data): return data
    def deserialize(self, data): return data
if __name__ == "__main__":
    server = Server()
    server.append_worker(Sleep, num=1, max_batch_size=1)
    server.run()
"""
LITSERVE = """
import time
import litserve
class Sleep(litserve.LitAPI):
    def setup(self, device): pass
    def decode_request(self, request): return 0
    def predict(self, x):
        time.sleep({service})
        return x
    def encode_response(self, output): return {{"ok": 1}}
if __name__ == "__main__":
    litserve.LitServer(Sleep(), accelerator="cpu", timeout={timeout}).run(
        port={port}, generate_client_file=False, log_level="error")
"""


@hami.register
class Sleeps(hami.Backend):
    """A model that takes so many milliseconds."""

    ms: int = SERVICE_MS

    def forward(self, batch: list[hami.Request]) -> None:
        """Wait, without the GIL."""
        time.sleep(self.ms / 1000)
        for item in batch:
            item["result"] = 1


def sends_to(pipe: hami.Pipe) -> Send:
    def send(timeout: float, answered: Callable[[], None]) -> None:
        future = pipe.submit({"data": 0}, timeout=timeout)
        future.add_done_callback(lambda done: answered() if not done.exception() else None)

    return send


@contextlib.contextmanager
def hami_node(timeout: float) -> Iterator[Send]:
    """Yield the product, with its default configuration."""
    with hami.pipe("Sleeps") as pipe:
        yield sends_to(pipe)


@contextlib.contextmanager
def hami_graph(first: int, second: int) -> Iterator[Send]:
    """Yield two nodes in a row, which take so many milliseconds."""
    nodes = {
        "first": {"backend": "Sleeps", "ms": first, "next": "second"},
        "second": {"backend": "Sleeps", "ms": second},
    }
    with hami.pipe(nodes) as pipe:
        yield sends_to(pipe)


@contextlib.contextmanager
def plain_queue(timeout: float) -> Iterator[Send]:
    """Yield a worker behind a bounded queue, which rejects requests while it is full."""
    waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(QUEUE_SIZE)

    def work() -> None:
        while answered := waiting.get():
            time.sleep(SERVICE_S)
            answered()

    worker = threading.Thread(target=work)
    worker.start()

    def send(timeout: float, answered: Callable[[], None]) -> None:
        with contextlib.suppress(queue.Full):
            waiting.put_nowait(answered)

    yield send
    waiting.put(None)
    worker.join()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    assert isinstance(port, int)
    return port


def post(connection: http.client.HTTPConnection, path: str) -> bool:
    connection.request("POST", path, b"{}", {"Content-Type": "application/json"})
    response = connection.getresponse()
    response.read()
    return response.status == 200


@contextlib.contextmanager
def http_server(python: str, program: str, path: str, timeout: float, *flags: str) -> Iterator[Send]:
    """Start a server and yield a client that has a connection for each thread."""
    port = free_port()
    text = textwrap.dedent(program).format(service=SERVICE_S, timeout=timeout, port=port)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(256) as pool:
        script = Path(folder, "server.py")
        script.write_text(text, "utf-8")
        arguments = [flag.format(port=port, milliseconds=round(timeout * 1000)) for flag in flags]
        server = subprocess.Popen(
            [python, str(script), *arguments],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + 60
        while True:
            try:
                if post(http.client.HTTPConnection("127.0.0.1", port, timeout=5), path):
                    break
            except OSError:
                if time.monotonic() > until or server.poll() is not None:
                    raise
            time.sleep(0.1)
        local = threading.local()

        def one(answered: Callable[[], None]) -> None:
            try:
                if not hasattr(local, "connection"):
                    local.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                if post(local.connection, path):
                    answered()
            except (OSError, http.client.HTTPException):
                local.connection.close()

        try:
            yield lambda timeout, answered: (pool.submit(one, answered), None)[1]
        finally:
            pool.shutdown(cancel_futures=True)
            os.killpg(server.pid, signal.SIGKILL)  # LitServe leaves processes behind when it is terminated
            server.wait(30)


def useful(
    send: Send, rate: float, timeout: float, seconds: float, seed: int, callers: int = 1
) -> tuple[list[float], int]:
    """Return the useful answers per second of each caller, without the first second, and how many requests were sent.

    The callers ask equally often, on threads of their own.
    """
    lock, counts, sent = threading.Lock(), [0] * callers, [0] * callers
    begin = time.monotonic() + WARM_UP_S
    end = begin + seconds

    def call(caller: int) -> None:
        chance = random.Random(1000 * seed + caller)
        moment = time.monotonic()
        while (moment := moment + chance.expovariate(rate / callers)) < end:
            time.sleep(max(0.0, moment - time.monotonic()))
            deadline = time.monotonic() + timeout
            sent[caller] += deadline >= begin and deadline < end

            def answered(deadline: float = deadline) -> None:
                moment = time.monotonic()
                if moment <= deadline and begin <= moment < end:
                    with lock:
                        counts[caller] += 1

            send(timeout, answered)

    threads = [threading.Thread(target=call, args=[caller]) for caller in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(timeout + SERVICE_S)
    return [count / seconds for count in counts], sum(sent)


def possible(rate: float, timeout: float, seconds: float, seed: int) -> float:
    """Return the useful answers per second of a worker that never waits and takes exactly its time.

    It gets the same requests as `useful` sends, in order, and drops those that cannot end in time.
    """
    chance, moment, free, answered = random.Random(1000 * seed), 0.0, 0.0, 0
    end = WARM_UP_S + seconds
    while (moment := moment + chance.expovariate(rate)) < end:
        if (ends := max(free, moment) + SERVICE_S) <= moment + timeout:
            free = ends
            answered += WARM_UP_S <= ends < end
    return answered / seconds


def print_shares(options: argparse.Namespace) -> None:
    """Print what two callers with the same timeout get, and how many requests end in time a second later."""
    print("| timeout, ms | requests/s | one caller | the other | in time afterwards |")
    print("|---" * 5 + "|")
    for multiple in options.timeouts:
        timeout = multiple * SERVICE_S
        for load in options.loads:
            with hami_node(timeout) as send:
                shares, _ = useful(send, load / SERVICE_S, timeout, options.seconds, 0, callers=2)
                [after], sent = useful(send, 10, timeout, options.seconds, 1)
            part = f"{round(after * options.seconds)} of {sent}"
            cells = [f"{timeout * 1000:.0f}", f"{load / SERVICE_S:.0f}", *(f"{each:.1f}" for each in shares), part]
            print("| " + " | ".join(cells) + " |", flush=True)


def print_graph(options: argparse.Namespace) -> None:
    """Print what two nodes in a row answer; timeouts are multiples of the sum of their times."""
    print("| nodes | timeout, ms | requests/s | useful answers/s | possible/s |")
    print("|---" * 5 + "|")
    for first, second in ((20, 20), (20, 25), (25, 20)):
        slower = max(first, second) / 1000
        for multiple in options.timeouts:
            timeout = multiple * (first + second) / 1000
            for load in options.loads:
                counts = []
                for seed in range(options.rounds):
                    with hami_graph(first, second) as send:
                        counts.append(useful(send, load / slower, timeout, options.seconds, seed)[0][0])
                cells = [f"{first} and {second} ms", f"{timeout * 1000:.0f}", f"{load / slower:.0f}"]
                cells += [f"{statistics.median(counts):.1f}", f"{min(load, 1) / slower:.0f}"]
                print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", metavar="PYTHON", help="of an environment with mosec 0.9.8 and litserve 0.2.19")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--timeouts", type=int, nargs="*", default=[2, 4, 20], help="in multiples of 20 ms")
    parser.add_argument("--loads", type=float, nargs="*", default=[1.5, 3, 10], help="in multiples of 50 per second")
    parser.add_argument("--shares", action="store_true", help="of two callers of HAMi, and what it answers afterwards")
    parser.add_argument("--graph", action="store_true", help="two nodes of HAMi in a row")
    options = parser.parse_args()
    if options.graph:
        return print_graph(options)
    if options.shares:
        return print_shares(options)
    systems: dict[str, Callable[[float], contextlib.AbstractContextManager[Send]]] = {
        "HAMi": hami_node,
        "queue.Queue": plain_queue,
    }
    if options.peers:
        systems["mosec"] = lambda timeout: http_server(
            options.peers, MOSEC, "/inference", timeout, "--port", "{port}", "--timeout", "{milliseconds}"
        )
        systems["LitServe"] = lambda timeout: http_server(options.peers, LITSERVE, "/predict", timeout)
    print("| timeout, ms | requests/s | possible | " + " | ".join(systems) + " |")
    print("|---" * (3 + len(systems)) + "|")
    for multiple in options.timeouts:
        timeout = multiple * SERVICE_S
        for load in options.loads:
            counts: dict[str, list[float]] = {name: [] for name in systems}
            for seed in range(options.rounds):
                for name, system in systems.items():
                    with system(timeout) as send:
                        counts[name].append(useful(send, load / SERVICE_S, timeout, options.seconds, seed)[0][0])
            best = [possible(load / SERVICE_S, timeout, options.seconds, seed) for seed in range(options.rounds)]
            cells = [f"{statistics.median(each):.1f}" for each in (best, *counts.values())]
            print(f"| {timeout * 1000:.0f} | {load / SERVICE_S:.0f} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
