"""A server that stops answers what clients have sent; a client that sends no more gets its answers."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing, suppress

import pytest

from hami_serve.http_protocol import Protocol, Shared
from hami_serve.http_times import Times

NOT_EPHEMERAL = 10_000, 30_000
INFER = "/v2/models/Identity/infer"
REQUEST = json.dumps({"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]}).encode()
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
SLOW = b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(REQUEST), REQUEST)


def answers(client: socket.socket, count: int) -> list[tuple[int, str | None]]:
    """Read answers; return the status and the header Connection of each."""
    found = []
    with client.makefile("rb") as stream:
        for _ in range(count):
            status = int(stream.readline().split()[1])
            headers = http.client.parse_headers(stream)
            assert len(stream.read(int(headers["content-length"]))) == int(headers["content-length"])
            found.append((status, headers["connection"]))
        if found[-1][1] == "close":
            assert stream.read() == b""  # the end, and no reset
    return found


def connected(server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


@pytest.mark.parametrize("door", ["native", "python"])
def test_the_next_request_of_an_idle_connection_is_answered_and_is_its_last_one(start, door):
    server = start({"any": "Identity"}, times=Times(last_request=60), door=door)
    with connected(server) as client:
        client.sendall(LIVE)
        assert answers(client, 1) == [(200, None)]
        server.stop()
        header = None
        while header is None:  # until the server has seen that it stops
            client.sendall(LIVE)
            ((status, header),) = answers(client, 1)
            assert status == 200
        assert header == "close"


@pytest.mark.parametrize("door", ["native", "python"])
def test_an_idle_connection_ends_without_a_reset_when_the_server_stops(start, door):
    server = start({"any": "Identity"}, door=door)
    with connected(server) as client:
        client.sendall(LIVE)
        assert answers(client, 1) == [(200, None)]
        server.stop()
        assert client.recv(1) == b""
        client.sendall(LIVE)  # which has crossed the end
        assert client.recv(1) == b""


def test_requests_that_wait_behind_another_one_are_answered_when_the_server_stops(start, gate):
    slow = gate("stops")
    server = start({"slow": {"backend": "TestGate", "gate": "stops"}})
    with connected(server) as client, connected(server) as other:
        client.sendall(SLOW + 20 * LIVE)
        assert slow.begun.acquire(timeout=60)
        server.stop()
        assert other.recv(1) == b""  # the server has begun to stop
        slow.opened.set()
        assert answers(client, 21) == [(200, None)] * 20 + [(200, "close")]


def test_after_a_second_sigint_no_other_signal_lets_the_server_wait_again(start, gate):
    slow = gate("forced")
    server = start({"slow": {"backend": "TestGate", "gate": "forced"}})
    server._server._drain = 1e6  # seconds
    with connected(server) as client:
        client.sendall(SLOW)
        assert slow.begun.acquire(timeout=60)
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            server._server._end_by_signal(number, None)
        assert client.recv(12) == b"HTTP/1.1 503"


def test_a_client_that_sends_no_more_gets_all_its_answers(start, gate):
    slow = gate("half")
    server = start({"slow": {"backend": "TestGate", "gate": "half"}})
    with connected(server) as client, client.makefile("rb") as stream:
        client.sendall(LIVE + SLOW + 20 * LIVE)
        client.shutdown(socket.SHUT_WR)
        assert slow.begun.acquire(timeout=60)
        slow.opened.set()
        assert stream.read().count(b"HTTP/1.1 200 OK\r\n") == 22


def test_a_request_that_ends_in_the_middle_ends_its_connection(start):
    server = start({"any": "Identity"})
    for data in (LIVE + LIVE[:20], LIVE + SLOW[:-5]):
        with connected(server) as client, client.makefile("rb") as stream:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            assert stream.read().count(b"HTTP/1.1 200 OK\r\n") == 1


def test_a_client_that_takes_no_more_after_its_end_loses_its_connection():
    async def app(scope: object, receive: object, send: Callable[[dict[str, object]], Awaitable[None]]) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": bytes(1 << 15)})

    async def main() -> None:
        loop, shared = asyncio.get_running_loop(), Shared(app)
        client, served = socket.socketpair()
        with client:
            client.sendall(LIVE)
            client.shutdown(socket.SHUT_WR)
            served.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the kernel takes less than the answer
            served.setblocking(False)
            _, protocol = await loop.connect_accepted_socket(lambda: Protocol(shared), served)
            while not protocol.transport.is_closing():
                await asyncio.sleep(0)
            assert protocol.transport.get_write_buffer_size() > 0
            protocol.close_if_overdue(loop.time() + 1e6)
            for _ in range(3):  # passes of the loop, for the end of the transport
                await asyncio.sleep(0)
            assert not shared.connections

    asyncio.run(main())


def test_a_client_of_tls_that_does_not_answer_the_end_loses_its_connection(start, certificate, monkeypatch):
    monkeypatch.setattr(asyncio.constants, "SSL_SHUTDOWN_TIMEOUT", 1e6, raising=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = start({"any": "Identity"}, times=Times(linger=0, last_request=0), door="python", tls=context)
    trusting = ssl.create_default_context(cafile=certificate[0])
    trusting.check_hostname = False
    for data in (LIVE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), LIVE):
        with trusting.wrap_socket(connected(server)) as client:
            client.sendall(data)
            assert client.recv(12) == b"HTTP/1.1 200"
            if data is LIVE:
                server.stop()
            while client.recv(1 << 16):
                pass
            with socket.socket(fileno=client.detach()) as without_tls, suppress(ConnectionResetError):
                without_tls.settimeout(60)
                while without_tls.recv(1 << 16):
                    pass


class Load:
    """Clients that send one request after the other until they cannot connect any more."""

    def __init__(self, line: str) -> None:
        self.port = int(re.search(r"http://[^:]+:(\d+)", line)[1])
        self.grpc = re.search(r"grpc://(\S+)", line)[1]
        self.seen: Counter[str] = Counter()
        self.warm = threading.Semaphore(0)
        kinds = [self._http, self._http_once, self._grpc] * 6
        self._threads = [threading.Thread(target=self._run, args=(kind,)) for kind in kinds]
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            assert self.warm.acquire(timeout=60)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)

    def _run(self, kind) -> None:
        with ExitStack() as opened:
            send = kind(opened)
            for number in range(1 << 30):
                outcome = send()
                if outcome == "refused":
                    return
                self.seen[outcome] += 1
                if number == 10:
                    self.warm.release()

    def _http(self, opened: ExitStack):
        connection = opened.enter_context(closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)))

        def send() -> str:
            try:
                if connection.sock is None:
                    connection.connect()
            except ConnectionRefusedError:
                return "refused"
            try:
                connection.request("POST", INFER, REQUEST)
                answer = connection.getresponse()
                answer.read()
            except Exception as error:
                connection.close()
                return f"lost: {error!r}"
            return f"{answer.status}"

        return send

    def _http_once(self, opened: ExitStack):
        return lambda: self._http(opened)()

    def _grpc(self, opened: ExitStack):
        import grpc

        from hami_serve.grpc_messages import message

        given = {"name": "x", "datatype": "INT8", "shape": [1], "contents": {"int_contents": [1]}}
        request = message("ModelInferRequest")(model_name="Identity", inputs=[given]).SerializeToString()
        channel = opened.enter_context(grpc.insecure_channel(self.grpc, [("grpc.use_local_subchannel_pool", 1)]))
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

        def send() -> str:
            try:
                infer(request, timeout=60)
            except grpc.RpcError as error:
                refused = error.code() is grpc.StatusCode.UNAVAILABLE and "connect" in error.details()
                return "refused" if refused else f"lost: {error.code()}: {error.details()}"
            return "200"

        return send


def free_port() -> int:
    """Return a port that no other process gets as a free one when the server has ended."""
    while True:
        with socket.socket() as bound, suppress(OSError):
            bound.bind(("127.0.0.1", random.randrange(*NOT_EPHEMERAL)))
            return bound.getsockname()[1]


@pytest.mark.parametrize("workers", [1, 2])
def test_no_request_is_lost_when_a_server_under_load_stops(tmp_path, workers):
    pytest.importorskip("grpc", reason="needs hami-serve[grpc]")
    pytest.importorskip("hami_serve.grpc_messages", exc_type=ImportError)
    command = [sys.executable, "-m", "hami", "serve", "Identity", "--workers", str(workers)]
    command += ["--http", str(free_port()), "--grpc", str(free_port())]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            load = Load(process.stdout.readline())
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            load.join()
        finally:
            process.kill()
    assert set(load.seen) == {"200"}


def test_new_connections_wait_while_the_server_has_no_descriptor(tmp_path):
    command = [sys.executable, "-m", "hami", "serve", "Identity", "--http", "0"]
    limit = [sys.executable, "-c", "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)); "]
    limit[-1] += "os.execv(sys.executable, sys.argv[1:])"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as opened:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 1024)), hard))
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        process = opened.enter_context(
            subprocess.Popen(
                [*limit, *command], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
        opened.callback(process.kill)
        port = int(process.stdout.readline().rpartition(":")[2])
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as first:
            first.connect()
            clients = [opened.enter_context(socket.create_connection(("127.0.0.1", port), 60)) for _ in range(300)]
            assert "new connections wait" in process.stderr.readline()
            for _ in range(100):
                first.request("POST", INFER, REQUEST)
                answer = first.getresponse()
                assert (answer.status, bool(answer.read())) == (200, True)
        for client in clients[:-1]:
            client.close()
        clients[-1].sendall(LIVE)
        assert answers(clients[-1], 1) == [(200, None)]
        process.terminate()
        assert process.wait(60) == 0
        assert len(process.stderr.readlines()) < 10
