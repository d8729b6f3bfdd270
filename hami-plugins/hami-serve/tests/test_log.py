"""A server keeps running if its log has no reader."""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import subprocess
import sys
from contextlib import closing

from hami_serve.log_lines import MAX_LINES, Lines

REQUEST = json.dumps({"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]})
BACKEND = """
import hami
import logging

@hami.register
class Talks(hami.Backend):
    def forward(self, batch):
        logging.getLogger("talks").warning("y" * 1000)
        for item in batch:
            item["result"] = 1
"""


def test_a_log_without_a_reader_does_not_stop_the_server(tmp_path):
    (tmp_path / "backends.py").write_text(BACKEND)
    command = [sys.executable, "-m", "hami", "serve", "Talks", "--import", "backends.py", "--http", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            port = int(process.stdout.readline().rpartition(":")[2])
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
                for _ in range(300):  # more bytes than a pipe has
                    connection.request("POST", "/v2/models/Talks/infer", REQUEST)
                    answer = connection.getresponse()
                    assert (answer.status, bool(answer.read())) == (200, True)
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
        assert process.stderr.readline() == f"hami serve: {'y' * 1000}\n"


def test_messages_that_are_dropped_are_counted():
    reads, writes = os.pipe()
    count = MAX_LINES + 1000
    handler = Lines(writes)
    for number in range(count):
        handler.handle(logging.LogRecord("x", logging.WARNING, "", 0, "%d %s", (number, "y" * 1000), None))
    with os.fdopen(reads) as stream:
        found = []
        while "dropped" not in (line := stream.readline()):
            assert line.endswith(f" {'y' * 1000}\n")
            found.append(int(line.split()[2]))
        assert found == sorted(set(found))
        assert len(found) + int(re.search(r"\d+", line)[0]) == count
        handler.close()
        os.close(writes)
        assert stream.read() == ""


def test_the_messages_of_a_server_that_ends_are_written():
    reads, writes = os.pipe()
    handler = Lines(writes)
    handler.handle(logging.LogRecord("x", logging.WARNING, "", 0, "of %d", ("wrong",), None))
    handler.close()
    os.close(writes)
    with os.fdopen(reads) as stream:
        assert stream.read() == "hami serve: 'of %d' ('wrong',)\n"
