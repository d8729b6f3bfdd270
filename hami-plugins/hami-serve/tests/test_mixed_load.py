"""No client gets bytes of another one, and nothing stays behind, among plain, slow, broken and leaving clients."""

from __future__ import annotations

import os
import random
import socket
import threading

import hami
import pytest
from mixed_load import MODELS, REQUESTS, HttpClient, Wrong, body_of, mixed_load

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"


@hami.register
class TestEcho(hami.Backend):
    def forward(self, batch):
        for item in batch:
            item["result"] = item["data"]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_no_client_gets_bytes_of_another_one(start):
    server = start(MODELS | {"python": "TestEcho"})
    assert server.get("/v2/health/ready")[0] == 200
    before = descriptors()
    seen = mixed_load(server.port)
    assert seen.total() >= REQUESTS
    budget = server.serving.budget
    while descriptors() > before or budget.used or budget.outside():  # until the server has seen that all have left
        assert server.get("/v2/health/live")[0] == 200
    found = server.get("/v2/models/any/stats")[1]["model_stats"][0]["inference_stats"]
    assert found["success"]["count"] >= seen["plain"] // 2
    assert found["fail"]["count"] == 0


def test_a_client_notices_answers_that_come_twice():
    bodies = [body_of(random.Random(number), 100) for number in range(2)]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                for data in bodies:
                    connection.recv(1)
                    connection.sendall(2 * (HEAD % len(data) + data))

        thread = threading.Thread(target=serve)
        thread.start()
        client = HttpClient(server.getsockname()[1], random.Random(1))
        client._exchange([b"x"], bodies[:1])
        with pytest.raises(Wrong, match="another request"):
            client._exchange([b"x"], bodies[1:])
        client.close()
        thread.join()
