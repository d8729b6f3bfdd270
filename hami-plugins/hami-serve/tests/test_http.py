"""The protocol over HTTP, with a client that sends bytes: valid and damaged requests; the server lives on."""

from __future__ import annotations

import gzip
import http.client
import json
import queue
import socket
import struct
import threading
import time

import numpy as np
import pytest
from conftest import say

from hami_serve import AllRounder
from hami_serve.server import listen

NUMBERS = list(range(16))


def tensor(name: str = "INPUT0", **changes: object) -> dict[str, object]:
    return {"name": name, "datatype": "INT32", "shape": [1, 16], "data": NUMBERS, **changes}


def pair(**others: object) -> dict[str, object]:
    return {"inputs": [tensor(), tensor("INPUT1")], **others}


def binary(head: dict[str, object], tail: bytes, length: int | None = None) -> tuple[bytes, dict[str, str]]:
    data = json.dumps(head).encode()
    return data + tail, {"Inference-Header-Content-Length": str(len(data) if length is None else length)}


def test_json_in_json_out(server):
    status, answer = server.post("/v2/models/simple/infer", pair(id="request 7"))
    assert status == 200
    assert answer == {
        "model_name": "simple",
        "model_version": "1",
        "id": "request 7",
        "outputs": [
            {"name": "OUTPUT0", "datatype": "INT32", "shape": [1, 16], "data": [2 * number for number in NUMBERS]},
            {"name": "OUTPUT1", "datatype": "INT32", "shape": [1, 16], "data": [0] * 16},
        ],
    }


def test_binary_tensors_in_both_directions(server):
    raw = np.arange(16, dtype="<i4").tobytes()
    entry = {"name": "x", "datatype": "INT32", "shape": [16], "parameters": {"binary_data_size": 64}}
    head = {"inputs": [entry], "outputs": [{"name": "result", "parameters": {"binary_data": True}}]}
    body, headers = binary(head, raw)
    status, answer_headers, answer = server.call("POST", "/v2/models/any/versions/1/infer", body, headers)
    assert status == 200
    length = int(answer_headers["Inference-Header-Content-Length"])
    (output,) = json.loads(answer[:length])["outputs"]
    assert output["parameters"] == {"binary_data_size": 64}
    assert answer[length:] == raw


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("BOOL", [True, False]),
        ("UINT8", [0, 255]),
        ("UINT16", [0, 65535]),
        ("UINT32", [0, 2**32 - 1]),
        ("UINT64", [0, 2**64 - 1]),
        ("INT8", [-128, 127]),
        ("INT16", [-32768, 32767]),
        ("INT32", [-(2**31), 2**31 - 1]),
        ("INT64", [-(2**63), 2**63 - 1]),
        ("FP16", [0.5, -2.0]),
        ("FP32", [0.5, 3]),
        ("FP64", [0.1, -1e300]),
        ("BYTES", ["text", "ü", ""]),
    ],
)
def test_each_datatype_keeps_its_values(server, datatype, data):
    entry = {"name": "x", "datatype": datatype, "shape": [len(data)], "data": data}
    status, answer = server.post("/v2/models/any/infer", {"inputs": [entry]})
    assert (status, answer["outputs"][0]["datatype"]) == (200, "BYTES" if datatype == "BYTES" else datatype)
    assert answer["outputs"][0]["data"] == data
    wanted = {"inputs": [entry], "outputs": [{"name": "result", "parameters": {"binary_data": True}}]}
    _, headers, body = server.call("POST", "/v2/models/any/infer", wanted)
    tail = body[int(headers["Inference-Header-Content-Length"]) :]
    back = {**entry, "parameters": {"binary_data_size": len(tail)}}
    del back["data"]
    sent, headers = binary({"inputs": [back]}, tail)
    assert server.call("POST", "/v2/models/any/infer", sent, headers)[2]["outputs"][0]["data"] == data


def test_bf16_is_rounded_to_nearest_even(server):
    values = np.array([1.0, 1.00390625, 1.01171875, -2.5, float("nan"), 3e38], "<f4")
    entry = {"name": "x", "datatype": "BF16", "shape": [6], "parameters": {"binary_data_size": 12}}
    head = {"inputs": [entry], "parameters": {"binary_data_output": True}}
    sent = (values.view("<u4") >> 16).astype("<u2").tobytes()
    body, headers = binary(head, sent)
    _, answer_headers, answer = server.call("POST", "/v2/models/bf16/infer", body, headers)
    tail = answer[int(answer_headers["Inference-Header-Content-Length"]) :]
    assert tail[:8] == sent[:8]
    exact = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1.00390625, 1.01171875]}
    status, answer = server.post("/v2/models/bf16/infer", {"inputs": [exact]})
    assert status == 200
    assert answer["outputs"][0]["datatype"] == "BF16"


def test_values_that_json_does_not_have_are_null(server):
    body, headers = binary(
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}]},
        struct.pack("<ff", float("nan"), 1.0),
    )
    assert server.call("POST", "/v2/models/any/infer", body, headers)[2]["outputs"][0]["data"] == [None, 1.0]


def test_connections_name_their_protocol_so_that_asyncio_sets_nodelay():
    """An implementation detail: without it each answer takes 40 ms, which no test can assert as a time."""
    with (
        listen("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as connection,
    ):
        assert connection.proto == socket.IPPROTO_TCP


def test_metadata_readiness_and_index(server):
    status, answer = server.get("/v2")
    assert (status, answer["name"]) == (200, "hami-serve")
    assert "binary_tensor_data" in answer["extensions"]
    assert server.get("/v2/health/live") == (200, {"live": True})
    assert server.get("/v2/health/ready") == (200, {"ready": True})
    status, answer = server.get("/v2/models/simple")
    assert status == 200
    assert answer["inputs"][1] == {"name": "INPUT1", "datatype": "INT32", "shape": [1, 16]}
    assert answer["versions"] == ["1"]
    assert server.get("/v2/models/simple/versions/1/ready") == (200, {"name": "simple", "ready": True})
    assert server.get("/v2/models/simple/config")[1]["input"][0]["data_type"] == "TYPE_INT32"
    status, answer = server.post("/v2/repository/index", {"ready": True})
    assert {"name": "simple", "version": "1", "state": "READY", "reason": ""} in answer


def test_statistics_count_successes_and_failures(start):
    server = start({"any": "Identity", "raises": "TestRaises"})
    for _ in range(3):
        server.post("/v2/models/any/infer", {"inputs": [tensor()]})
    server.post("/v2/models/raises/infer", {"inputs": [tensor()]})
    _, answer = server.get("/v2/models/stats")
    counts = {each["name"]: each["inference_stats"] for each in answer["model_stats"]}
    assert counts["any"]["success"]["count"] == 3
    assert counts["raises"]["fail"]["count"] == 1
    assert {counts["any"][f"compute_{part}"]["count"] for part in ("input", "infer", "output")} == {3}
    assert server.get("/v2/models/any/versions/1/stats")[1]["model_stats"][0]["inference_count"] == 3


def test_models_are_unloaded_and_loaded_by_clients(start, tmp_path):
    (tmp_path / "one.toml").write_text('[one]\nbackend = "Identity"\n')
    server = start(tmp_path, allow_control=True)
    assert server.post("/v2/repository/models/absent/unload")[0] == 404
    assert server.post("/v2/repository/models/one/unload") == (200, {})
    assert server.get("/v2/models/one/ready")[0] == 503
    status, answer = server.post("/v2/models/one/infer", {"inputs": [tensor()]})
    assert (status, answer) == (503, {"error": '"one" version "1" is unloaded; load it first'})
    assert server.post("/v2/repository/models/one/load") == (200, {})
    (tmp_path / "two.toml").write_text('[two]\nbackend = "Identity"\n')
    assert server.post("/v2/repository/models/two/load") == (200, {})
    assert server.post("/v2/models/two/infer", {"inputs": [tensor()]})[0] == 200
    (tmp_path / "bad.toml").write_text('[bad]\nbackend = "TestBroken"\n')
    status, answer = server.post("/v2/repository/models/bad/load")
    assert (status, answer["error"]) == (
        500,
        '"bad" failed to load: RuntimeError; the log of the server has the message',
    )
    assert server.post("/v2/repository/models/absent/load")[0] == 404
    assert server.post("/v2/repository/models/one/load", {"parameters": {"config": "{}"}})[0] == 400


@pytest.mark.parametrize("action", ["load", "unload"])
def test_clients_cannot_load_and_unload_models_by_default(server, action):
    status, answer = server.post(f"/v2/repository/models/simple/{action}")
    assert (status, f"asked to {action} a model" in answer["error"]) == (403, True), answer
    assert "--allow-control" in answer["error"]
    assert server.get("/v2/models/simple/ready")[0] == 200


def test_a_picture_and_text_are_raw_bodies(server):
    path = "/v2/models/any/infer?binary_data_output=true"
    status, headers, answer = server.call("POST", path, b"\xff\xd8picture", {"Content-Type": "image/jpeg"})
    length = int(headers["Inference-Header-Content-Length"])
    (output,) = json.loads(answer[:length])["outputs"]
    assert (status, output["datatype"], output["shape"]) == (200, "BYTES", [1])
    assert answer[length:] == b"\x09\0\0\0\xff\xd8picture"
    status, answer = server.post(
        "/v2/models/any/infer", "grüß dich".encode(), {"Content-Type": "text/plain; charset=utf-8"}
    )
    assert answer["outputs"][0]["data"] == ["grüß dich"]
    assert server.post("/v2/models/any/infer", b"\xff", {"Content-Type": "text/plain"})[0] == 400
    raw = {"Inference-Header-Content-Length": "0"}
    status, answer = server.post("/v2/models/bf16/infer", struct.pack("<HH", 0x3F80, 0x4000), raw)
    assert (status, answer["outputs"][0]["data"]) == (200, [1.0, 2.0])


def test_an_alias_and_a_version_choose_the_model(start):
    server = start({"a": {"versions": {"1": say("one"), "2": say("two")}, "aliases": ["b"]}})
    request = {"inputs": [tensor()]}
    assert server.post("/v2/models/b/infer", request)[1]["outputs"][0]["data"] == ["two on cpu"]
    assert server.post("/v2/models/a/versions/1/infer", request)[1]["outputs"][0]["data"] == ["one on cpu"]
    status, answer = server.post("/v2/models/a/versions/9/infer", request)
    assert (status, answer) == (404, {"error": '"a" has no version "9"; versions: 1, 2'})


BAD: list[tuple[object, str]] = [
    (b"{", "the request is not valid JSON"),
    (b"[]", "the request is a JSON object, got []"),
    (b"[" * 200_000, "the request is nested too deep"),
    ({}, "the request has no inputs"),
    ({"inputs": 7}, "inputs is a list of objects, got 7"),
    ({"inputs": [{}] * 1025}, "a request has at most 1024 inputs, got 1025"),
    ({"inputs": [{"shape": [1]}]}, "every input has a name, got None"),
    ({"inputs": [tensor(), tensor()]}, 'two inputs have the name "INPUT0"'),
    ({"inputs": [tensor(datatype="FP8")]}, 'input "INPUT0" has the datatype FP8; known: BOOL'),
    ({"inputs": [tensor(datatype=None)]}, 'input "INPUT0" has the datatype None'),
    ({"inputs": [tensor(shape=[-1])]}, "has the size -1 in its shape"),
    ({"inputs": [tensor(shape="16")]}, "needs a shape of at most 32 sizes"),
    ({"inputs": [tensor(shape=[1] * 33)]}, "needs a shape of at most 32 sizes"),
    ({"inputs": [tensor(shape=[2**40, 2**40])]}, "has a shape of more than 281474976710656 elements"),
    ({"inputs": [tensor(shape=[1, 15])]}, "has 16 elements; its shape [1, 15] has 15"),
    ({"inputs": [tensor(data=None)]}, "is a list, got None"),
    ({"inputs": [tensor(data=[[1, 2], [3]])]}, "is not a regular list"),
    ({"inputs": [tensor(data=["a"] * 16)]}, 'is INT32, and has the element "a"'),
    ({"inputs": [tensor(datatype="INT64", data=["7"] * 16)]}, 'is INT64, and has the element "7"'),
    ({"inputs": [tensor(shape=["16"])]}, 'has the size "16" in its shape'),
    ({"inputs": [tensor(data=[0.5] * 16)]}, "is INT32, and has the element 0.5"),
    ({"inputs": [tensor(data=[2**31] + [0] * 15)]}, "has the element 2147483648; INT32 is"),
    ({"inputs": [tensor(data=[10**400] * 16)]}, "has the element of 1329 bits; INT32 is"),
    ({"inputs": [tensor(datatype="BYTES", shape=[2], data=["a", 7])]}, "its elements are strings, got 7"),
    ({"inputs": [{"name": "x", "datatype": "INT8", "shape": [1]}]}, "has neither data nor the parameter"),
    (
        {"inputs": [tensor(data=[], parameters={"binary_data_size": 4})]},
        "has the binary_data_size 4; 0 bytes of the body",
    ),
    ({"inputs": [tensor(parameters={"binary_data_size": 0})]}, "has data and the parameter binary_data_size"),
    ({"inputs": [tensor(data=[], parameters={"binary_data_size": -4})]}, "has the binary_data_size -4"),
    ({"inputs": [tensor(parameters={"shared_memory_region": "r"})]}, "this server has no shared memory"),
    ({"inputs": [tensor(parameters=[])], "parameters": 3}, "the parameters of the request are an object, got 3"),
    ({"inputs": [tensor()], "id": 5}, "the id of a request is a string, got 5"),
    ({"inputs": [tensor()], "id": "\ud800"}, "the id of a request is Unicode text, got '\\ud800'"),
    ({"inputs": [tensor()], "parameters": {"timeout": -1}}, "the parameter timeout is an int from 0"),
    (
        {"inputs": [tensor()], "parameters": {"priority": 256}},
        "priority is an int from 0 to 255, got 256",
    ),
    ({"inputs": [tensor()], "outputs": [{"name": "n" * 10_000}]}, 'has no output "nnn'),
    ({"inputs": [tensor()], "parameters": {"deadline": "soon"}}, "the deadline of a request is in seconds since 1970"),
]


@pytest.mark.parametrize(("body", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_requests_are_answered_with_a_sentence(server, body, message):
    status, answer = server.post("/v2/models/any/infer", body)
    assert (status, message in answer["error"]) == (400, True), answer
    assert len(answer["error"]) < 500
    assert server.post("/v2/models/any/infer", {"inputs": [tensor()]})[0] == 200


TAILS: list[tuple[str, int, int, bytes, str]] = [
    ("INT32", 16, 63, b"\0" * 63, "has 63 bytes; INT32 of shape [16] has 64"),
    ("INT32", 16, 64, b"\0" * 60, "has the binary_data_size 64; 60 bytes of the body are left for it"),
    ("INT32", 16, 64, b"\0" * 65, "the body has 1 bytes after its last tensor"),
    ("INT32", 2**40, 64, b"\0" * 64, "has 64 bytes; INT32 of shape"),
    ("BYTES", 2, 7, b"\1\0\0\0a\0\0", "has 7 bytes, too few for 2 elements of BYTES"),
    ("BYTES", 1, 5, b"\xff\xff\xff\xffa", "element 0 of BYTES has 4294967295 bytes, and 1 are left"),
    ("BYTES", 2, 9, b"\4\0\0\0abcd\0", "ends before element 1 of BYTES"),
    ("BYTES", 1, 6, b"\1\0\0\0ab", "has 1 bytes after its last element"),
    ("BYTES", 2**40, 4, b"\0" * 4, "too few for 1099511627776 elements"),
]


@pytest.mark.parametrize(("datatype", "count", "size", "tail", "message"), TAILS, ids=[each[4][:40] for each in TAILS])
def test_damaged_tensors_are_answered_with_a_sentence(server, datatype, count, size, tail, message):
    entry = {"name": "x", "datatype": datatype, "shape": [count], "parameters": {"binary_data_size": size}}
    body, headers = binary({"inputs": [entry]}, tail)
    status, answer = server.post("/v2/models/any/infer", body, headers)
    assert (status, message in answer["error"]) == (400, True), answer


@pytest.mark.parametrize("length", ["-1", "9" * 30, "x", "1000", "²"])
def test_a_wrong_header_length_is_answered_with_a_sentence(server, length):
    headers = {"Inference-Header-Content-Length": length.encode().decode("latin-1")}
    status, answer = server.post("/v2/models/any/infer", {"inputs": [tensor()]}, headers)
    assert (status, "it is the length of the JSON part" in answer["error"]) == (400, True), answer


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([tensor()], 'model "simple" needs the input "INPUT1"'),
        (
            [tensor(), tensor("INPUT1"), tensor("INPUT2")],
            '"simple" has no input "INPUT2"; inputs: INPUT0, INPUT1',
        ),
        ([tensor(), tensor("INPUT1", datatype="INT64")], 'input "INPUT1" of model "simple" is INT32, got INT64'),
        ([tensor(), tensor("INPUT1", shape=[16])], 'input "INPUT1" of model "simple" has the shape [1, 16], got [16]'),
    ],
)
def test_inputs_that_do_not_fit_the_model_are_rejected(server, inputs, message):
    status, answer = server.post("/v2/models/simple/infer", {"inputs": inputs})
    assert (status, message in answer["error"]) == (400, True), answer


def test_json_of_many_small_objects_is_refused_before_it_takes_memory(start):
    server = start({"any": "Identity"})
    body = gzip.compress(b'{"inputs": [' + b"{}," * 2_000_000 + b"{}]}")  # 6 kB, and 140 MB as values
    status, answer = server.post("/v2/models/any/infer", body, {"Content-Encoding": "gzip"})
    assert status == 400
    assert "it has more than 1048576 lists and objects" in answer["error"]


def test_compressed_bodies_and_a_gzip_bomb(start):
    server = start({"any": "Identity"}, max_body=100_000)
    body = json.dumps({"inputs": [tensor()]}).encode()
    assert server.post("/v2/models/any/infer", gzip.compress(body), {"Content-Encoding": "gzip"})[0] == 200
    bomb = gzip.compress(b" " * 50_000_000)
    assert len(bomb) < 100_000
    status, answer = server.post("/v2/models/any/infer", bomb, {"Content-Encoding": "gzip"})
    assert (status, answer) == (
        413,
        {"error": "the expanded body has more than the 100000 bytes that this server accepts"},
    )
    assert server.post("/v2/models/any/infer", b"no gzip", {"Content-Encoding": "gzip"})[0] == 400
    assert server.post("/v2/models/any/infer", gzip.compress(body)[:-9], {"Content-Encoding": "gzip"})[0] == 400


def test_a_body_over_the_limit_is_413_with_and_without_a_declared_length(start):
    server = start({"any": "Identity"}, max_body=1000)
    assert server.post("/v2/models/any/infer", b" " * 1001)[0] == 413
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", "/v2/models/any/infer", iter([b" " * 600] * 2), encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/v3", 404, "there is no /v3"),
        ("GET", "/v2/models/any/infer", 405, "/v2/models/any/infer does not take GET"),
        ("POST", "/v2", 405, "/v2 does not take POST"),
        ("POST", "/docs", 405, "/docs does not take POST"),
        ("GET", "/v2/models/absent", 404, 'there is no model "absent"; models: any, bf16'),
        ("GET", "/v2/models/" + "n" * 5000, 404, "there is no model"),
    ],
)
def test_unknown_places_are_named(server, method, path, status, message):
    found, _, answer = server.call(method, path)
    assert (found, message in answer["error"]) == (status, True), answer


def test_errors_of_the_backend_reach_the_client_with_their_text(server):
    status, answer = server.post("/v2/models/raises/infer", {"inputs": [tensor()]})
    assert (status, answer["error"].splitlines()[0]) == (500, "ZeroDivisionError: in the backend")


def test_a_deadline_counts_the_time_before_the_request_came(start, gate):
    slow = gate("late")
    server = start({"slow": {"backend": "TestGate", "gate": "late"}})

    def ask(deadline: float) -> tuple[int, str]:
        status, answer = server.post(
            "/v2/models/slow/infer", {"inputs": [tensor()], "parameters": {"deadline": deadline}}
        )
        return status, answer.get("error", "")

    status, error = ask(time.time() - 5)
    assert (status, "after its deadline" in error) == (504, True), error
    assert not slow.begun.acquire(blocking=False)  # it did not run
    for seconds in (0.05, 0.5, 5, 50):  # on a busy machine, the request may come after its deadline
        status, error = ask(time.time() + seconds)
        if "after its deadline" not in error:
            break
    assert (status, "timed out" in error) == (504, True), error


def test_a_timeout_is_504_and_a_full_queue_429(start, gate):
    slow = gate("http")
    server = start({"slow": {"backend": "TestGate", "gate": "http", "max_queue_size": 1, "on_full": "reject"}})
    limited = {"inputs": [tensor()], "parameters": {"timeout": 1000}}
    assert server.post("/v2/models/slow/infer", limited)[0] == 504
    results: queue.Queue[int] = queue.Queue()

    def call() -> None:
        results.put(server.post("/v2/models/slow/infer", {"inputs": [tensor()]})[0])

    callers = [threading.Thread(target=call) for _ in range(6)]
    for caller in callers:
        caller.start()
    first = results.get(timeout=30)  # at most two of them fit: one in the instance, one in the queue
    slow.opened.set()
    for caller in callers:
        caller.join(30)
    assert first == 429
    assert {results.get() for _ in range(5)} <= {200, 429}


def test_a_client_that_disconnects_cancels_its_request(start, gate):
    slow = gate("left")
    server = start({"slow": {"backend": "TestGate", "gate": "left"}})
    body = json.dumps({"inputs": [tensor()]}).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(
            b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        assert slow.begun.acquire(timeout=30)
    assert slow.cancelled.wait(30)
    assert server.get("/v2/health/live")[0] == 200


def test_a_client_that_dies_in_its_body_leaves_the_server_alive(server):
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"POST /v2/models/any/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    assert server.get("/v2/health/live")[0] == 200


def test_idle_and_half_sent_connections_do_not_delay_others(server):
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
    for client in clients[:100]:
        client.sendall(b"POST /v2/models/any/infer HTTP/1.1\r\nHo")
    assert server.post("/v2/models/any/infer", {"inputs": [tensor()]})[0] == 200
    for client in clients:
        client.close()


def test_an_all_rounder_of_the_caller_is_served_and_changed_while_it_is(start):
    with AllRounder({"a": say("old")}) as rounder:
        server = start(rounder)
        request = {"inputs": [tensor()]}
        assert server.post("/v2/models/a/infer", request)[1]["outputs"][0]["data"] == ["old on cpu"]
        rounder.submit("a", say("new"))
        assert server.post("/v2/models/a/infer", request)[1]["outputs"][0]["data"] == ["new on cpu"]
        server.close()
        assert not rounder.closed


def test_large_tensors_are_used_where_the_socket_has_written_them(start):
    server = start({"place": "TestPlace"})
    tensors = {name: np.arange(count, dtype=np.int32) for name, count in (("first", 100_000), ("second", 50_000))}
    entries = [
        {"name": name, "datatype": "INT32", "shape": [each.size], "parameters": {"binary_data_size": each.nbytes}}
        for name, each in tensors.items()
    ]
    for id in ("", "a", "ab", "abc", "abcd"):  # any length of the JSON part
        head = json.dumps({"inputs": entries, "id": id}).encode()
        body = head + b"".join(each.tobytes() for each in tensors.values())
        status, answer = server.post(
            "/v2/models/place/infer", body, {"Inference-Header-Content-Length": str(len(head))}
        )
        assert status == 200, answer
        sums = [int(each.sum()) for each in tensors.values()]
        assert answer["outputs"][0]["data"] == [0, 0, *sums]


def test_large_bodies_and_small_ones_follow_one_another_on_a_connection(server):
    sizes = [1 << 20, 10, 1 << 17, 70_000, 0, 3 << 20]
    requests, bodies = [], []
    for size in sizes:
        entry = {"name": "x", "datatype": "UINT8", "shape": [size], "parameters": {"binary_data_size": size}}
        head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
        bodies.append(bytes(range(256)) * (size // 256) + bytes(size % 256))
        lines = (
            "POST /v2/models/any/infer HTTP/1.1",
            "Host: x",
            f"Inference-Header-Content-Length: {len(head)}",
            f"Content-Length: {len(head) + size}",
        )
        requests.append("\r\n".join([*lines, "", ""]).encode() + head + bodies[-1])
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        sender = threading.Thread(target=client.sendall, args=(b"".join(requests),))
        sender.start()
        with client.makefile("rb") as stream:
            for body in bodies:
                length = 0
                while (line := stream.readline()) != b"\r\n":
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                answer = stream.read(length)
                assert answer[len(answer) - len(body) :] == body
        sender.join(60)
