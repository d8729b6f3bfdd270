"""Models in replicas of Ray Serve: what happens to requests when a replica dies, batches, limits and cancellation."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

ray = pytest.importorskip("ray", reason="needs ray[serve]: ci/test serving", exc_type=ImportError)

import hami  # noqa: E402
from ray import serve  # noqa: E402

import hami_serve.ray  # noqa: E402
from hami_serve import AllRounder  # noqa: E402

TIMEOUT_S = 120
CLIENTS = 64
BACKENDS = '''
import os
import threading
from pathlib import Path

import hami


@hami.register
class Count(hami.Backend):
    """The number of words, the process and the size of the batch."""

    def forward(self, batch):
        for item in batch:
            item["result"] = [len(item["data"].split()), os.getpid(), len(batch)]


@hami.register
class Held(hami.Backend):
    """Ends when the file `open` exists in the folder; writes `begun`, and `cancelled` if the request is."""

    folder: str

    def forward(self, batch):
        folder = Path(self.folder)
        (folder / "begun").touch()
        while not (folder / "open").exists():
            threading.Event().wait(0.01)
            if batch[0].cancelled:
                (folder / "cancelled").touch()
                break
        batch[0]["result"] = os.getpid()


@hami.register
class Words(hami.Backend):
    def forward(self, batch):
        data = batch[0]["data"]
        yield from (data.decode() if isinstance(data, bytes) else data).split()
'''


def until(condition) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.02)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Ray with Serve on a free port; yields the port and a file with backends."""
    file = tmp_path_factory.mktemp("ray") / "backends.py"
    file.write_text(BACKENDS)
    with closing(socket.create_server(("127.0.0.1", 0))) as unused:
        port = unused.getsockname()[1]
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="error")
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    yield port, file
    serve.shutdown()
    ray.shutdown()


@pytest.fixture
def run(cluster):
    """run(source, **options) deploys models, and returns the port of their server and a handle."""
    port, file = cluster

    def begin(source, **options):
        options.setdefault("graceful_shutdown_wait_loop_s", 0.1)
        made = hami_serve.ray.deployment(source, imports=[str(file)], **options)
        return port, serve.run(made, name="models", route_prefix="/")

    yield begin
    serve.delete("models")


class Client:
    """A client with one connection, for requests of text."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)

    def post(self, path: str, body: object, **headers: str) -> tuple[int, dict]:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        kind = "text/plain" if isinstance(body, str) else "application/json"
        self._connection.request("POST", path, data, {"Content-Type": kind, **headers})
        answer = self._connection.getresponse()
        content = answer.read()
        try:
            return answer.status, json.loads(content)
        except ValueError:  # a text of Ray
            return answer.status, {"error": content.decode()}

    def close(self) -> None:
        self._connection.close()


def result(answer: dict) -> list:
    return answer["outputs"][0]["data"]


def test_every_request_of_64_clients_is_answered_when_a_replica_is_killed(run):
    port, _ = run({"count": "Count"}, num_replicas=2, health_check_period_s=1)
    killed, ended = threading.Event(), threading.Event()
    pids: Counter[int] = Counter()
    lock = threading.Lock()

    def ask(number: int) -> Counter[str]:
        """Send requests until the end, and at least one after it; return how many were answered in which way."""
        found: Counter[str] = Counter()
        with closing(Client(port)) as client:
            last = False
            while not last:
                last = ended.is_set()
                found["sent"] += 1
                status, answer = client.post("/v2/models/count/infer", "word " * number)
                if status == 200:
                    words, pid, _ = result(answer)
                    assert words == number
                    with lock:
                        pids[pid] += 1
                else:
                    assert status >= 500, answer
                    assert answer["error"]
                    found["errors"] += 1
                    assert killed.is_set(), answer
                    assert not last, answer
                found["answered"] += 1
        return found

    with ThreadPoolExecutor(CLIENTS) as pool:
        futures = [pool.submit(ask, number) for number in range(1, CLIENTS + 1)]
        try:
            until(lambda: len(pids) == 2 and min(pids.values()) >= CLIENTS)
            before = dict(pids)
            killed.set()
            victim = min(before)
            os.kill(victim, signal.SIGKILL)
            until(lambda: len(pids) == 3 and min(pids[pid] for pid in pids if pid not in before) >= CLIENTS)
        finally:
            ended.set()
        total = sum((future.result(TIMEOUT_S) for future in futures), Counter())
    assert total["answered"] == total["sent"]
    print(f"{total['sent']} requests of {CLIENTS} clients, {total['errors']} errors, processes: {dict(pids)}")


def test_requests_of_one_replica_share_a_batch(run):
    source = {"count": {"backend": "Count", "max": 4, "min": 4, "batching_timeout": "60s"}}
    _, handle = run(source)
    responses = [handle.call.remote({"data": "to be"}) for _ in range(4)]
    found = [response.result(timeout_s=TIMEOUT_S)["result"] for response in responses]
    assert [(words, size) for words, _, size in found] == [(2, 4)] * 4


def test_a_timeout_is_a_deadline_in_the_replica(run, tmp_path):
    port, handle = run({"held": {"backend": "Held", "folder": str(tmp_path)}})
    body = {
        "inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}],
        "parameters": {"timeout": 50_000},
    }
    with closing(Client(port)) as client:
        status, answer = client.post("/v2/models/held/infer", body)
    assert (status, "timed out" in answer["error"]) == (504, True), answer
    with pytest.raises(hami.DeadlineExceeded):
        handle.call.remote({"data": 1}, timeout=0.05).result(timeout_s=TIMEOUT_S)


def test_the_time_in_the_queues_of_ray_counts_for_a_deadline(run, tmp_path):
    source = {"held": {"backend": "Held", "folder": str(tmp_path)}}
    _, handle = run(source, max_ongoing_requests=1)
    first = handle.call.remote({"data": 1})
    until((tmp_path / "begun").exists)
    deadline = time.time() + 0.2
    second = handle.call.remote({"data": 2}, deadline=deadline)  # it waits for the first one
    until(lambda: time.time() > deadline)
    (tmp_path / "open").touch()
    assert first.result(timeout_s=TIMEOUT_S)["result"]
    with pytest.raises(hami.DeadlineExceeded, match="after its deadline"):
        second.result(timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("how", ["handle", "http"])
def test_a_caller_that_leaves_cancels_its_request(run, tmp_path, how):
    port, handle = run({"held": {"backend": "Held", "folder": str(tmp_path)}})
    if how == "handle":
        response = handle.call.remote({"data": 1})
        until((tmp_path / "begun").exists)
        response.cancel()
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("POST", "/v2/models/held/infer", b"1", {"Content-Type": "text/plain"})
        until((tmp_path / "begun").exists)
        connection.close()
    until((tmp_path / "cancelled").exists)


def test_a_multiplexed_model_is_loaded_by_its_first_request(run):
    say = {name: {"backend": "Count", "max": size} for name, size in (("small", 1), ("large", 9))}
    port, handle = run(say, models_per_replica=1)

    def states() -> dict[str, str]:
        _, models = client.post("/v2/repository/index", {})
        return {model["name"]: model["state"] for model in models}

    with closing(Client(port)) as client:
        assert set(states().values()) == {"UNAVAILABLE"}
        status, _ = client.post("/v2/models/small/infer", "to be", serve_multiplexed_model_id="small")
        assert (status, states()) == (200, {"small": "READY", "large": "UNAVAILABLE"})
        to_large = handle.options(multiplexed_model_id="large")
        assert to_large.call.remote({"data": "to be or"}).result(timeout_s=TIMEOUT_S)["result"][0] == 3
        assert states() == {"small": "UNAVAILABLE", "large": "READY"}
    with pytest.raises(hami.NotFound, match='there is no model "other"'):
        handle.options(multiplexed_model_id="other").call.remote({"data": ""}).result(timeout_s=TIMEOUT_S)
    with pytest.raises(hami.RequestError, match="the request names no model; models: small, large"):
        handle.call.remote({"data": ""}).result(timeout_s=TIMEOUT_S)


def test_parts_are_streamed(run):
    port, handle = run({"words": "Words"})
    parts = handle.options(stream=True).stream.remote({"data": "to be or"})
    assert list(parts) == ["to", "be", "or"]
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as connection:
        connection.request("POST", "/v2/models/words/generate_stream", b'{"prompt": "not to be"}')
        events = connection.getresponse().read().decode().split("\n\n")
    assert [json.loads(event.partition(": ")[2])["result"] for event in events if event] == ["not", "to", "be"]


def test_waiting_requests_start_another_replica(run, tmp_path):
    scaling = {
        "min_replicas": 1,
        "max_replicas": 2,
        "target_ongoing_requests": 1,
        "upscale_delay_s": 0,
        "metrics_interval_s": 0.1,
        "look_back_period_s": 0.2,
    }
    _, handle = run({"held": {"backend": "Held", "folder": str(tmp_path)}}, autoscaling_config=scaling)
    responses = [handle.call.remote({"data": 1}) for _ in range(8)]
    status = serve.status
    until(lambda: status().applications["models"].deployments["hami"].replica_states.get("RUNNING") == 2)
    (tmp_path / "open").touch()
    assert all(response.result(timeout_s=TIMEOUT_S)["result"] for response in responses)


def test_an_all_rounder_cannot_be_deployed():
    with AllRounder() as rounder, pytest.raises(hami.ConfigError, match="stays in its process"):
        hami_serve.ray.deployment(rounder)


def test_an_absent_file_of_backends_is_named(cluster):
    made = hami_serve.ray.deployment("Identity", imports=["/absent.py"], max_constructor_retry_count=1)
    with pytest.raises(RuntimeError):
        serve.run(made, name="broken", route_prefix="/broken")
    assert "no such file" in serve.status().applications["broken"].deployments["hami"].message
    serve.delete("broken")
