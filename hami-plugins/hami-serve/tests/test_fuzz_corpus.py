"""Both doors answer every input of the fuzz target of HTTP alike, and end its connection."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from hami_serve.http_times import Times

CORPUS = Path(__file__).parents[3] / "tests" / "fuzz" / "corpus" / "http"


def answers(port: int, data: bytes) -> bytes:
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        while piece := client.recv(1 << 16):
            found += piece
    return re.sub(rb"date: [^\r]*\r\n", b"", found)


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is part of the repository only")
def test_both_doors_answer_every_input_of_the_corpus_alike(start):
    times = Times(half_closed=60)  # a client that waits is not taken for one that has left
    python, native = (start({"any": "Identity"}, door=door, times=times) for door in ("python", "native"))
    inputs = sorted(CORPUS.iterdir())
    assert len(inputs) > 50
    for path in inputs:
        data = path.read_bytes()
        assert answers(native.port, data) == answers(python.port, data), path.name
