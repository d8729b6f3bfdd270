"""`hami serve --uds PATH` listens on a Unix socket of its user, and leaves none behind."""

from __future__ import annotations

import http.client
import json
import socket
import stat
import sys

import hami
import pytest
from server_process import free_port, running

from hami_serve.server import listen_at

REQUEST = json.dumps({"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]})


@pytest.mark.parametrize("door", ["native", "python"])
def test_a_unix_socket_answers_and_is_removed_at_the_end(tmp_path, door):
    path, port = tmp_path / "s", free_port()
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))  # what a server that was killed leaves
    command = [sys.executable, "-m", "hami", "serve", "Identity", "--http", str(port), "--uds", "s", "--door", door]
    with running(command, tmp_path, port) as process:
        assert process.stdout.readline().rstrip().endswith(f" on http://127.0.0.1:{port} and unix:s")
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(path))
        for _ in range(2):
            connection.request("POST", "/v2/models/Identity/infer", REQUEST)
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())["outputs"][0]["data"]) == (200, [1])
        connection.close()
        with pytest.raises(hami.ConfigError, match="another server listens there"):
            listen_at(str(path))
        process.terminate()
        assert process.wait(60) == 0
    assert not path.exists()


def test_another_file_stays(tmp_path):
    path = tmp_path / "notes"
    path.write_text("kept")
    with pytest.raises(hami.ConfigError, match=r'cannot listen on ".*notes": another file has this name'):
        listen_at(str(path))
    assert path.read_text() == "kept"
