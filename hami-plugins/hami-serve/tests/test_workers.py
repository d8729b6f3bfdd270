"""`hami serve --workers N`: several processes behind one port."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hami_serve.describing import summed_statistics
from hami_serve.metrics import of_workers, packed, text
from hami_serve.peers import Peers

BACKENDS = '''
import os
import threading
import hami

os.write(1, f"worker {os.getpid()}\\n".encode())  # in one piece: the workers share the stream

@hami.register
class WhoAmI(hami.Backend):
    def forward(self, batch):
        for item in batch:
            item["result"] = os.getpid()

@hami.register
class Held(hami.Backend):
    """Ends when the file `open` exists."""

    def forward(self, batch):
        os.write(1, b"begun\\n")
        while not os.path.exists("open"):
            threading.Event().wait(0.01)
        for item in batch:
            item["result"] = "done"

@hami.register
class NoSecondStart(hami.Backend):
    """Cannot be made if the file `broken` exists."""

    def init(self, options):
        if os.path.exists("broken"):
            raise RuntimeError("the file of the model is damaged")

    def forward(self, batch):
        for item in batch:
            item["result"] = os.getpid()
'''
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]})


class Server:
    """A running command: its process, the port of HTTP, and the process ids of its workers."""

    def __init__(self, process: subprocess.Popen[str], workers: int) -> None:
        self.process = process
        self.workers = {int(self.line("worker ").split()[1]) for _ in range(workers)}
        self.announced = self.line("serving ")
        self.port = int(self.announced.partition("http://")[2].split()[0].rpartition(":")[2])

    def line(self, start: str) -> str:
        line = self.process.stdout.readline()
        assert line.startswith(start), line + (self.process.stderr.read() if not line else "")
        return line

    def says(self, text: str) -> str:
        """Return the next line of the standard error that contains a text."""
        while text not in (line := self.process.stderr.readline()):
            assert line, f"{text!r} was not printed"
        return line

    def infer(self, model: str) -> object:
        """Return the result of a request over a connection of its own."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            return result_of(connection, model)

    def reach_all(self, model: str, workers: set[int]) -> None:
        """Send requests until each of these workers has answered; the kernel chooses the worker."""
        reached: set[object] = set()
        while not workers <= reached:
            reached.add(self.infer(model))
            assert reached <= workers

    def get(self, path: str) -> bytes:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("GET", path)
            return connection.getresponse().read()


def result_of(connection: http.client.HTTPConnection, model: str):
    connection.request("POST", f"/v2/models/{model}/infer", BODY)
    return json.loads(connection.getresponse().read())["outputs"][0]["data"][0]


@contextmanager
def serving(folder: Path, *arguments: str, workers: int = 2):
    (folder / "backends.py").write_text(BACKENDS)
    command = [sys.executable, "-m", "hami", "serve", *arguments, "--import", "backends.py", "--http", "0"]
    command += ["--workers", str(workers)]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield Server(process, workers)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_every_worker_answers_and_sigterm_ends_all_with_status_0(tmp_path):
    with serving(tmp_path, "WhoAmI") as server:
        assert server.announced.startswith("serving WhoAmI with 2 workers on http://127.0.0.1:")
        server.reach_all("WhoAmI", server.workers)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.stdout.read() == ""  # the end of the stream is the end of the last worker
        assert server.process.wait(60) == 0
        assert server.process.stderr.read() == ""


def test_a_worker_that_dies_is_started_again(tmp_path):
    with serving(tmp_path, "WhoAmI") as server:
        killed, other = server.workers
        os.kill(killed, signal.SIGKILL)
        server.says("was ended by SIGKILL; it is started again")
        new = int(server.line("worker ").split()[1])
        server.says(f"(process {new}) serves")
        server.reach_all("WhoAmI", {other, new})
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0


def test_a_worker_that_fails_to_start_again_leaves_the_others_serving(tmp_path):
    with serving(tmp_path, "NoSecondStart") as server:
        killed, other = server.workers
        (tmp_path / "broken").touch()
        os.kill(killed, signal.SIGKILL)
        server.says("was ended by SIGKILL; it is started again")
        server.says("has failed to start: RuntimeError: the file of the model is damaged")
        assert server.infer("NoSecondStart") == other
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0


def test_sigterm_answers_the_open_requests_of_every_worker(tmp_path):
    (tmp_path / "models.toml").write_text('who = {backend = "WhoAmI"}\nheld = {backend = "Held"}\n')
    with serving(tmp_path, "models.toml") as server, ExitStack() as opened:
        connections: dict[int, http.client.HTTPConnection] = {}
        while connections.keys() != server.workers:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            opened.enter_context(closing(connection))
            connections[result_of(connection, "who")] = connection
        for connection in connections.values():
            connection.request("POST", "/v2/models/held/infer", BODY)
            server.line("begun")
        server.process.send_signal(signal.SIGTERM)
        (tmp_path / "open").touch()
        for connection in connections.values():
            assert json.loads(connection.getresponse().read())["outputs"][0]["data"] == ["done"]
        assert server.process.wait(60) == 0


def test_a_request_that_never_ends_does_not_keep_the_server_beyond_its_drain_time(tmp_path):
    with serving(tmp_path, "Held", "--drain", "10ms", workers=1) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", "/v2/models/Held/infer", BODY)
        server.line("begun")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        connection.close()


def test_workers_end_with_their_supervisor(tmp_path):
    with serving(tmp_path, "WhoAmI") as server:
        server.process.kill()
        assert server.process.stdout.read() == ""  # the end of the stream is the end of the last worker


def test_metrics_and_statistics_are_those_of_all_workers(tmp_path):
    with serving(tmp_path, "WhoAmI") as server:
        counts = dict.fromkeys(server.workers, 0)
        while not all(counts.values()):
            counts[server.infer("WhoAmI")] += 1
        found = {
            sample.labels["worker"]: sample.value
            for family in text_string_to_metric_families(server.get("/metrics").decode())
            for sample in family.samples
            if sample.name == "hami_serve_requests_total" and sample.labels["outcome"] == "success"
        }
        assert sorted(found) == ["0", "1"]
        assert sorted(found.values()) == sorted(counts.values())
        (statistics,) = json.loads(server.get("/v2/models/WhoAmI/stats"))["model_stats"]
        assert statistics["inference_stats"]["success"]["count"] == sum(counts.values())


def test_workers_share_the_port_of_grpc(tmp_path):
    grpc = pytest.importorskip("grpc", reason="needs hami-serve[grpc]")
    messages = pytest.importorskip("hami_serve.grpc_messages", exc_type=ImportError)
    request = messages.message("ModelInferRequest")(model_name="WhoAmI")
    tensor = request.inputs.add(name="x", datatype="INT8", shape=[1])
    tensor.contents.int_contents.append(1)
    with serving(tmp_path, "WhoAmI", "--grpc", "0") as server:
        url = server.announced.rpartition("grpc://")[2].strip()
        reached = set()
        while not server.workers <= reached:
            options = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own
            with grpc.insecure_channel(url, options) as channel:
                method = channel.unary_unary(
                    "/inference.GRPCInferenceService/ModelInfer",
                    request_serializer=messages.message("ModelInferRequest").SerializeToString,
                    response_deserializer=messages.message("ModelInferResponse").FromString,
                )
                reached.add(method(request, timeout=60).outputs[0].contents.int64_contents[0])
        assert reached == server.workers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.toml"], 'cannot read "absent.toml": No such file'),
        (["Identity", "--import", "absent.py"], 'cannot import "absent.py": no such file'),
        (["Identity", "--allow-control"], "--allow-control needs one worker"),
        (["Identity", "--host", "203.0.113.1"], "cannot listen on 203.0.113.1 port"),
    ],
)
def test_mistakes_end_the_command_with_a_sentence(tmp_path, arguments, message):
    command = [sys.executable, "-m", "hami", "serve", "--http", "0", "--workers", "2", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, message in done.stderr, done.stdout) == (1, True, ""), done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_an_error_though_workers_share_theirs(tmp_path):
    with serving(tmp_path, "Identity") as server:
        command = [sys.executable, "-m", "hami", "serve", "Identity", "--workers", "2", "--http", str(server.port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert (done.returncode, "Address already in use" in done.stderr) == (1, True), done.stderr


def test_a_worker_that_does_not_answer_is_left_out_of_the_metrics(tmp_path):
    async def ask() -> dict[int, object]:
        peers = [Peers(tmp_path, 3, number) for number in range(2)]  # the third does not run
        async with await peers[0].listen({"number": lambda: 0}), await peers[1].listen({"number": lambda: 1}):
            return await peers[0].ask("number")

    assert asyncio.run(ask()) == {0: 0, 1: 1}
    shown = text(of_workers({1: packed(of_workers({}, 1))}, 2)).decode()
    assert 'hami_serve_worker_up{worker="0"} 0.0' in shown
    assert 'hami_serve_worker_up{worker="1"} 1.0' in shown


def test_statistics_of_workers_are_summed_by_version():
    def of(version: str, count: int, last: int) -> dict[str, object]:
        return {"name": "a", "version": version, "last_inference": last, "queue": {"count": count, "ns": 10 * count}}

    assert summed_statistics([[of("1", 2, 50), of("2", 1, 7)], [of("1", 3, 40)]]) == [of("1", 5, 50), of("2", 1, 7)]
