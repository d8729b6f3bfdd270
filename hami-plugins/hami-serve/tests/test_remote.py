"""`Remote`: models of other servers as backends, over both transports, and replicas that fail."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import shutil
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import as_completed
from contextlib import ExitStack, closing
from itertools import islice

import hami
import numpy as np
import pytest
from conftest import FLOODS, Flood, io, models
from test_command import serving
from together import run_forked

pytest.importorskip("aiohttp", reason="needs hami-serve[remote]")

from hami_serve import RemoteFailed, RemoteUnavailable
from hami_serve.remote.call import RemoteCall
from hami_serve.remote.client import Client, Settings
from hami_serve.remote.replicas import FAILURES, Circuit, Replicas

TIMEOUT = 60.0


@hami.register
class TestLimits(hami.Backend):
    """Returns the limits that it sees."""

    def forward(self, batch):
        for item in batch:
            left = None if item.deadline is None else item.deadline - time.monotonic()
            item["result"] = {"left": left or -1.0, "priority": item.priority, "seen": str(item.get("parameters"))}


@pytest.fixture(params=["http", "grpc"])
def url(request, start):
    """url(source) starts a server in this process, and returns its URL."""

    with ExitStack() as stack:

        def begin(source) -> str:
            if request.param == "http":
                return f"http://{start(source).url}"
            pytest.importorskip("grpc_reflection", reason="needs hami-serve[grpc]")
            from conftest import RunningGrpc

            return f"grpc://{stack.enter_context(closing(RunningGrpc(source))).url}"

        yield begin


def remote(urls: str | list[str], model: str, **options: object) -> hami.Pipe:
    return hami.pipe({"backend": "Remote", "url": urls, "model": model, **options})


def unused_url() -> str:
    with closing(socket.create_server(("127.0.0.1", 0))) as unused:
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


def test_a_remote_model_returns_what_it_returns_in_its_own_process(url):
    numbers = np.arange(16, dtype=np.int32).reshape(1, 16)
    with remote(url(models()), "simple", max=8) as pipe:
        (one, two) = pipe([{"INPUT0": numbers, "INPUT1": numbers + n, "mine": 1} for n in (0, 1)])
        assert set(one["result"]) == {"OUTPUT0", "OUTPUT1"}
        assert np.array_equal(two["OUTPUT0"], 2 * numbers + 1)
        assert np.array_equal(two["OUTPUT1"], np.full((1, 16), -1))
        assert one["mine"] == 1
        nested = pipe({"data": {"INPUT0": numbers, "INPUT1": numbers}})
        assert np.array_equal(nested["result"]["OUTPUT0"], 2 * numbers)


@pytest.mark.parametrize("value", [np.float32([[1, 2]]), b"\0bytes", np.array([[b"a", b""]], object)])
def test_the_only_input_is_data_and_the_only_output_is_result(url, value):
    with remote(url(models()), "any") as pipe:
        found = pipe({"data": value})["result"]
        assert type(found) is type(value)
        assert np.array_equal(found, value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a process with threads forks
def test_a_process_that_forks_has_connections_of_its_own(start):
    address = f"http://{start(models()).url}"

    def call() -> None:
        with remote(address, "any") as pipe:
            assert pipe({"data": b"forked"}, timeout=TIMEOUT)["result"] == b"forked"

    with remote(address, "any") as pipe:
        run_forked(call)
        assert pipe({"data": b"parent"})["result"] == b"parent"


def test_numbers_of_python_get_the_datatype_of_the_input(url):
    source = {"half": {"source": "Identity", **io("FP16", [-1], ("x", "y"))}}
    with remote(url(source), "half") as pipe:
        found = pipe({"data": [0.5, 2]})["result"]
        assert (found.dtype, found.tolist()) == (np.float16, [0.5, 2.0])
        assert pipe({"data": [1, 2]})["result"].tolist() == [1.0, 2.0]
        with pytest.raises(hami.DataTypeError, match='input "x" of the remote model is FP16, got BYTES'):
            pipe({"data": "text"})
        with pytest.raises(hami.RequestError, match='needs the input "x"; the request has y'):
            pipe({"y": 1})


def test_integers_that_an_input_cannot_hold_are_an_error(url):
    source = {"small": {"source": "Identity", **io("UINT8", [-1], ("x", "y"))}}
    with remote(url(source), "small") as pipe:
        assert pipe({"data": [1, 255]})["result"].tolist() == [1, 255]
        with pytest.raises(hami.RequestError, match="has the element 256; UINT8 is 0 to 255"):
            pipe({"data": [1, 256]})
        with pytest.raises(hami.DataTypeError, match="is UINT8, got FP64"):
            pipe({"data": [1.5]})


@pytest.fixture
def grpc_url():
    """grpc_url(source) starts a server in this process, and returns its URL."""
    pytest.importorskip("grpc_reflection", reason="needs hami-serve[grpc]")
    from conftest import RunningGrpc

    with ExitStack() as stack:
        yield lambda source: f"grpc://{stack.enter_context(closing(RunningGrpc(source))).url}"


def test_the_parts_of_a_remote_model_reach_a_caller_that_takes_them(grpc_url):
    source = models()
    with remote(grpc_url(source), "words", parts=True) as pipe:
        request = {"text_input": np.array([[b"to be"]], object)}
        assert list(pipe.stream(request)) == [b"to", b"be"]
        assert request["result"] == b"to be"
        assert pipe({"text_input": np.array([[b"or not"]], object)})["result"] == b"or not"
        with pytest.raises(RemoteFailed, match="this word is an error"):
            list(pipe.stream({"text_input": np.array([[b"one fail"]], object)}))
    with remote(grpc_url(source), "repeat_int32", parts=True) as pipe:
        values = np.array([4, 2], np.int32)
        request = {"IN": values, "DELAY": np.zeros(2, np.uint32), "WAIT": np.zeros(1, np.uint32)}
        assert [(int(part["OUT"][0]), int(part["IDX"][0])) for part in pipe.stream(request)] == [(4, 0), (2, 1)]
        assert request["result"] is None


def test_parts_over_http_are_an_error_of_the_build():
    with pytest.raises(hami.ConfigError, match="passes on parts over gRPC only"):
        remote(unused_url(), "any", parts=True)


def test_a_caller_that_leaves_the_parts_ends_the_remote_model(grpc_url):
    FLOODS["remote"] = flood = Flood()
    with remote(grpc_url({"flood": {"backend": "TestFlood", "flood": "remote"}}), "flood", parts=True) as pipe:
        for part in pipe.stream({"data": 1}):
            assert len(part) == 1 << 16
            break
        assert flood.ended.wait(TIMEOUT)
        assert flood.parts < 4096


def test_errors_of_the_server_have_the_types_of_local_ones(url):
    with remote(url(models()), "simple") as pipe:
        wrong = np.zeros((1, 3), np.int32)
        with pytest.raises(hami.RequestError, match=r"has the shape \[1, 16\], got \[1, 3\]"):
            pipe({"INPUT0": wrong, "INPUT1": wrong})
    with (
        remote(url(models()), "raises") as pipe,
        pytest.raises(RemoteFailed, match="ZeroDivisionError: in the backend") as failed,
    ):
        pipe({"data": 1})
    assert not isinstance(failed.value, hami.RequestError)


def test_a_model_that_does_not_exist_is_an_error_of_the_build(url):
    with pytest.raises(hami.NotFound, match='there is no model "absent"'):
        remote(url(models()), "absent")
    with pytest.raises(hami.NotFound, match='"any" has no version "7"'):
        remote(url(models()), "any", version="7")


def test_a_full_queue_of_all_replicas_is_a_full_queue(url, gate):
    held = gate("full")
    source = {"slow": {"backend": "TestGate", "gate": "full", "max_queue_size": 1, "on_full": "reject"}}
    with remote(url(source), "slow", instance_num=4) as pipe:
        futures = [pipe.submit({"data": 1})]
        assert held.begun.acquire(timeout=TIMEOUT)
        futures += [pipe.submit({"data": 1}) for _ in range(3)]  # one of them fits into the queue
        rejected = list(islice(as_completed(futures, TIMEOUT), 2))
        assert {type(future.exception()) for future in rejected} == {hami.QueueFull}
        held.opened.set()
        assert [future.result(TIMEOUT)["result"] for future in futures if future not in rejected] == [b"full"] * 2


def test_deadline_and_priority_are_passed_on(url):
    with remote(url({"limits": "TestLimits"}), "limits") as pipe:
        seen = pipe({"data": 1, "deadline": time.monotonic() + 50, "parameters": {"a": 1}}, priority=7)
        assert 0 < seen["left"][0] < 60
        assert seen["priority"].tolist() == [7]
        assert seen["seen"].tolist() == [b"{'a': 1}"]
        assert pipe({"data": 1})["left"].tolist() == [-1.0]


@pytest.mark.parametrize("how", ["future", "deadline"])
def test_a_cancelled_request_is_cancelled_at_the_server(url, gate, how):
    held = gate("held")
    with remote(url({"held": {"backend": "TestGate", "gate": "held"}}), "held") as pipe:
        future = pipe.submit({"data": 1}, timeout=None if how == "future" else 2.0)
        assert held.begun.acquire(timeout=TIMEOUT)
        if how == "future":
            assert future.cancel()
        else:
            with pytest.raises(hami.DeadlineExceeded):
                future.result(TIMEOUT)
        assert held.cancelled.wait(TIMEOUT)


def test_an_error_that_comes_while_a_request_is_cancelled_is_not_logged(caplog):
    begun, ended = threading.Event(), threading.Event()

    class Late:
        """Answers a cancellation with the error of the server."""

        async def infer(self, call):
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise hami.DeadlineExceeded("too late") from None
            finally:
                ended.set()

        async def close(self):
            pass

    client = Client(Settings(urls=("http://127.0.0.1:1",), model="any"))
    client._transports = dict.fromkeys(client._transports, Late())
    future = client.infer(RemoteCall([], {}, None, None, None))
    assert begun.wait(TIMEOUT)
    assert future.cancel()
    assert ended.wait(TIMEOUT)
    client.close()
    del future  # it refers to the task
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_a_sequence_keeps_its_replica(url):
    source = {"sum": "S[TestAccumulate]"}
    with remote([url(source), url(source)], "sum") as pipe:
        for name in ("a", "b", "c", "d"):
            sums = [
                pipe({"data": [n], "req_id": name, "sequence_start": n == 1, "finish": n == 3})["result"].tolist()
                for n in (1, 2, 3)
            ]
            assert sums == [[1], [3], [6]]


@pytest.mark.parametrize(("scheme", "arguments"), [("http", ()), ("grpc", ("--grpc", "0"))])
def test_a_replica_that_dies_loses_no_request(tmp_path, scheme, arguments):
    if scheme == "grpc":
        pytest.importorskip("grpc_reflection", reason="needs hami-serve[grpc]")
    with ExitStack() as stack:
        replicas = [stack.enter_context(serving(tmp_path, "Identity", *arguments)) for _ in range(2)]
        urls = [f"{scheme}://127.0.0.1:{port}" for _, port in replicas]
        with remote(urls, "Identity", instance_num=8, max=4) as pipe:
            answered = threading.Semaphore(0)
            stop = threading.Event()
            wrong: list[object] = []

            def call(number: int) -> None:
                while not stop.is_set():
                    try:
                        found = pipe({"data": np.array([number])})["result"]
                        if found.tolist() != [number]:
                            wrong.append(found)
                    except Exception as error:
                        wrong.append(error)
                    answered.release()

            callers = [threading.Thread(target=call, args=(number,)) for number in range(16)]
            for caller in callers:
                caller.start()
            for _ in range(200):
                assert answered.acquire(timeout=TIMEOUT)
            replicas[0][0].send_signal(signal.SIGKILL)
            replicas[0][0].wait(TIMEOUT)
            for _ in range(1000):
                assert answered.acquire(timeout=TIMEOUT)
            stop.set()
            for caller in callers:
                caller.join(TIMEOUT)
            assert wrong == []


def test_a_server_with_a_token_and_a_certificate(tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("needs openssl")
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key -out cert -days 2"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*make.split(), *names], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "token").write_text("s3cret\n")
    server = ("Identity", "--token-file", "token", "--tls-cert", "cert", "--tls-key", "key")
    files = {"tls_ca": str(tmp_path / "cert"), "token_file": str(tmp_path / "token")}
    with serving(tmp_path, *server) as (_, port):
        url = f"https://127.0.0.1:{port}"
        with remote(url, "Identity", **files) as pipe:
            assert pipe({"data": b"x"})["result"] == b"x"
        with pytest.raises(RemoteFailed, match="this server needs a token"):
            remote(url, "Identity", tls_ca=files["tls_ca"])
        with pytest.raises(RemoteUnavailable, match="certificate"):
            remote(url, "Identity", token_file=files["token_file"])


def test_without_a_replica_the_error_names_each(start):
    dead = [unused_url(), unused_url()]
    with pytest.raises(RemoteUnavailable) as error:
        remote(dead, "any")
    assert all(url in str(error.value) for url in dead)
    assert "refused" in str(error.value).lower() or "connect" in str(error.value).lower()
    with remote([dead[0], f"http://{start(models()).url}"], "any") as pipe:
        assert pipe({"data": b"x"})["result"] == b"x"


def test_a_replica_that_does_not_answer_in_time_is_given_up(start):
    working = f"http://{start(models()).url}"
    patient = {"attempts": 1000, "recovery": "0s"}  # the working one may be slow, too
    with socket.create_server(("127.0.0.1", 0)) as silent:
        urls = [working, f"http://127.0.0.1:{silent.getsockname()[1]}"]
        with remote(urls, "any", attempt_timeout="200ms", **patient) as pipe:
            for number in range(4):
                assert pipe({"data": str(number)})["result"] == str(number).encode()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": ["127.0.0.1:8000"]}, 'begins with one of http://, https://, grpc://, grpcs://, got "127.0.0.1:8000"'),
        ({"url": ["ftp://host"]}, 'got "ftp://host"'),
        ({"url": []}, "needs a url"),
        ({"url": ["http://host"], "attempts": 0}, "at least 1 attempt"),
    ],
)
def test_mistakes_of_the_configuration_are_named(options, message):
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "Remote", "model": "m", **options})
    assert message in str(error.value)


def test_a_file_without_certificates_is_named(tmp_path):
    (tmp_path / "ca").write_text("none")
    with pytest.raises(hami.ConfigError, match=r'tls_ca: ".*ca" has no certificates in PEM'):
        remote("https://127.0.0.1:1", "any", tls_ca=str(tmp_path / "ca"))


def test_clients_with_the_same_settings_are_one(start):
    from hami_serve.remote import client

    url = f"http://{start(models()).url}"
    with remote(url, "any", instance_num=3), remote(url, "any"):
        (users,) = [users for _, users in client._clients.values()]
        assert users == 4
    assert client._clients == {}


def test_a_circuit_opens_after_failures_and_tries_one_request_later():
    replicas = Replicas(["a", "b"], recovery=5.0)
    broken, working = replicas.all
    for _ in range(FAILURES):
        replicas.begin(broken)
        replicas.end(broken, now=10.0, works=False)
    assert broken.circuit(10.0) is Circuit.OPEN
    assert replicas.choose(14.9) is working
    assert broken.circuit(15.0) is Circuit.HALF_OPEN
    replicas.begin(working)
    assert replicas.choose(15.0) is broken
    replicas.begin(broken)
    assert replicas.choose(15.0) is working  # one request at a time tries the broken one
    replicas.end(broken, now=15.5, works=False)
    assert broken.circuit(20.0) is Circuit.OPEN
    replicas.begin(broken)
    replicas.end(broken, now=21.0, works=True)
    assert broken.circuit(21.0) is Circuit.CLOSED


def test_the_least_busy_replica_is_chosen_and_one_that_was_tried_only_at_the_end():
    replicas = Replicas(["a", "b", "c"], recovery=1.0)
    first, second, third = replicas.all
    replicas.begin(first)
    assert replicas.choose(0.0) is second
    assert replicas.choose(0.0, [second]) is third
    assert replicas.choose(0.0, [second, third]) is first
    assert replicas.choose(0.0, [first, second, third]) is not None
    replicas.end(first, 0.0, None)
    assert first.circuit(0.0) is Circuit.CLOSED


def test_sequences_of_one_id_have_one_replica():
    replicas = Replicas(["a", "b", "c"], recovery=1.0)
    chosen = {replicas.choose(0.0, sequence=name) for name in range(50)}
    assert chosen == set(replicas.all)
    for replica in replicas.all:
        replicas.begin(replica)
    assert replicas.choose(0.0, sequence=7) is replicas.choose(0.0, sequence="7")


@pytest.mark.parametrize("announced", [True, False])
def test_an_answer_without_end_is_not_read(monkeypatch, announced):
    monkeypatch.setattr("hami_serve.remote.http_transport.MAX_ANSWER", 1 << 20)
    metadata = b'{"name":"m","inputs":[{"name":"x","datatype":"INT8","shape":[1]}]}'
    ended = threading.Event()

    def answer(connection):
        with contextlib.suppress(OSError), connection:
            while connection.recv(1 << 16).startswith(b"GET"):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(metadata), metadata))
            length = b"Content-Length: 99999999999\r\n" if announced else b""
            connection.sendall(b"HTTP/1.1 200 OK\r\n%b\r\n" % length)
            while not ended.is_set():
                connection.sendall(b"{" * (1 << 16))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with (
            hami.pipe({"backend": "Remote", "url": [url], "model": "m"}) as pipe,
            pytest.raises(Exception, match="more than 1048576 bytes"),
        ):
            pipe({"data": np.zeros(1, np.int8)}, timeout=60)
        ended.set()
