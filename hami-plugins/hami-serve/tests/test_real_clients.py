"""What clients of other projects send: their headers, their numbers in JSON, and names that this server also uses."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import subprocess
import time

import hami
import numpy as np
import pytest


@hami.register
class TestRecurrent(hami.Backend):
    """A model with the inputs of silero-vad: the sum of `input`, and the state after it."""

    def forward(self, batch):
        for item in batch:
            given = item["data"]
            item["result"] = {"output": given["input"] + given["state"], "stateN": given["state"] + given["sr"]}


@hami.register
class TestKind(hami.Backend):
    """The Python type of the data, and its text."""

    def forward(self, batch):
        for item in batch:
            item["result"] = f"{type(item['data']).__name__} {item['data']!r}"


@hami.register
class TestScalar(hami.Backend):
    """The sum of all elements, as an array without axes."""

    def forward(self, batch):
        for item in batch:
            item["result"] = np.asarray(item["data"].sum())


MODELS = {
    "any": "Identity",
    "bytes": {"source": "Identity", "inputs": [{"name": "x", "datatype": "BYTES", "shape": [-1]}]},
    "vad": "TestRecurrent",
    "kind": "TestKind",
    "sum": "TestScalar",
}


@pytest.fixture(scope="module")
def clients_server():
    from conftest import Running

    running = Running(MODELS)
    yield running
    running.close()


def entry(data: object, datatype: str = "FP32", shape: list[int] | None = None, name: str = "x") -> dict[str, object]:
    count = len(data) if isinstance(data, list) else 1
    return {"name": name, "datatype": datatype, "shape": [count] if shape is None else shape, "data": data}


def infer(server, *entries: dict[str, object], model: str = "any", **others: object):
    return server.post(f"/v2/models/{model}/infer", {"inputs": list(entries), **others})


def outputs(answer: tuple[int, dict]) -> dict[str, object]:
    status, content = answer
    assert status == 200, content
    return {each["name"]: each["data"] for each in content["outputs"]}


# ---- text ----


SPACES = {"mark": b"\xef\xbb\xbf", "mark and space": b"\xef\xbb\xbf \n", "space": b" \r\n" * 1000}


@pytest.mark.parametrize("before", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "text/plain;charset=UTF-8", None])
def test_json_may_begin_with_a_byte_order_mark_and_space(clients_server, before, kind):
    headers = {"Content-Type": kind} if kind else {}
    body = before + json.dumps({"inputs": [entry([[1], [2]], "INT8", [2, 1])]}).encode()
    assert outputs(clients_server.post("/v2/models/any/infer", body, headers)) == {"result": [1, 2]}
    if kind != "text/plain;charset=UTF-8":
        assert clients_server.post("/any", before + b'{"a": 1}', headers) == (200, 1)


# ---- numbers ----


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
def test_null_is_nan_as_the_server_itself_writes_it(clients_server, datatype):
    first = infer(clients_server, entry([1.5, None, 2], datatype))
    assert outputs(first) == {"result": [1.5, None, 2.0]}
    again = {**first[1]["outputs"][0], "name": "x"}
    assert outputs(infer(clients_server, again)) == {"result": [1.5, None, 2.0]}


@pytest.mark.parametrize("datatype", ["INT8", "INT64", "UINT64", "BOOL", "BYTES"])
def test_null_is_refused_where_there_is_no_nan(clients_server, datatype):
    status, answer = infer(clients_server, entry([None], datatype))
    assert status == 400
    assert f'input "x" is {datatype}' in answer["error"]


@pytest.mark.parametrize(
    ("datatype", "text"),
    [
        *(("FP16", "65520"), ("FP32", "1e39"), ("FP32", "-1e39"), ("FP64", "1e999"), ("FP64", "-1e400")),
        *(("BF16", "4e38"), ("FP64", "1" + "0" * 400), ("FP32", "1" + "0" * 100)),
    ],
)
def test_a_number_out_of_range_is_not_infinite(clients_server, datatype, text):
    body = f'{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":[2],"data":[1,{text}]}}]}}'
    status, answer = clients_server.post("/v2/models/any/infer", body.encode())
    assert status == 400
    assert f"{datatype} is" in answer["error"]


def test_infinities_are_taken_from_python_and_refused_as_json_output(clients_server):
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[3],"data":[NaN,Infinity,-Infinity]}]%s}'
    status, answer = clients_server.post("/v2/models/any/infer", body % b"")
    assert (status, "ask for it as binary data" in answer["error"]) == (400, True), answer
    asked = body % b',"parameters":{"binary_data_output":true}'
    _, headers, content = clients_server.call("POST", "/v2/models/any/infer", asked)
    values = np.frombuffer(content[int(headers["Inference-Header-Content-Length"]) :], "<f4")
    np.testing.assert_array_equal(values, [np.nan, np.inf, -np.inf])


def test_bytes_that_are_not_text_are_refused_as_json_output(clients_server):
    head = {"name": "x", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 6}}

    def send(**others):
        data = json.dumps({"inputs": [head], **others}).encode()
        headers = {"Inference-Header-Content-Length": str(len(data))}
        return clients_server.call("POST", "/v2/models/bytes/infer", data + b"\2\0\0\0\xff\xfe", headers)

    status, _, answer = send()
    assert (status, "ask for it as binary data" in answer["error"]) == (400, True), answer
    status, _, answer = send(outputs=[{"name": "result", "parameters": {"binary_data": True}}])
    assert (status, answer[-2:]) == (200, b"\xff\xfe")


@pytest.mark.parametrize("data", ["[1, -0, 2]", "[[1, -0, 2]]", "[1,-0,2]" + " " * 20_000])
def test_the_sign_of_zero_stays_as_go_writes_it(clients_server, data):
    body = '{"inputs":[{"name":"x","datatype":"%s","shape":[1,3],"data":%s}]}'
    for datatype in ("FP16", "FP32", "FP64"):
        status, _, content = clients_server.call("POST", "/v2/models/any/infer", (body % (datatype, data)).encode())
        assert (status, repr(content["outputs"][0]["data"])) == (200, "[1.0, -0.0, 2.0]")
    integers = (body % ("INT8", data)).encode()
    assert outputs(clients_server.post("/v2/models/any/infer", integers)) == {"result": [1, 0, 2]}


@pytest.mark.parametrize("text", [r'"\ud800"', r'"a\udfff"'])
def test_a_string_that_is_not_unicode_is_refused(clients_server, text):
    body = f'{{"inputs":[{{"name":"x","datatype":"BYTES","shape":[1],"data":[{text}]}}]}}'
    status, answer = clients_server.post("/v2/models/any/infer", body.encode())
    assert (status, "not valid Unicode" in answer["error"]) == (400, True), answer


def test_a_tensor_without_axes_keeps_its_shape(clients_server):
    for data in ([2.5], 2.5):
        status, answer = infer(clients_server, entry(data, shape=[]))
        assert status == 200, answer
        assert answer["outputs"][0]["shape"] == []
        assert answer["outputs"][0]["data"] == [2.5]
    status, answer = infer(clients_server, entry([1, 2]), model="sum")
    assert (answer["outputs"][0]["shape"], answer["outputs"][0]["data"]) == ([], [3.0])
    assert infer(clients_server, entry([1, 2], shape=[]))[0] == 400


@pytest.mark.parametrize(
    "text",
    [
        '"shape":[0,1180591620717411303424],"data":[]',
        '"shape":[0,4611686018427387904],"data":[]',
        '"shape":[' + "9" * 3000 + "," + "9" * 3000 + '],"data":[1]',
        '"shape":[' + "9" * 8000 + '],"data":[1]',
        '"shape":[4294967296,4294967296,0],"data":[]',
        '"shape":[1],"data":[1],"parameters":{"binary_data_size":' + "9" * 4000 + "}",
        '"shape":[1.0],"data":[1]',
        '"shape":[true],"data":[1]',
        '"shape":[1e400],"data":[1]',
    ],
    ids=lambda text: text[:40],
)
def test_sizes_are_bounded_before_arithmetic(clients_server, text):
    body = f'{{"inputs":[{{"name":"x","datatype":"INT32",{text}}}]}}'
    status, answer = clients_server.post("/v2/models/any/infer", body.encode())
    assert status == 400, answer
    assert len(answer["error"]) < 500


@pytest.mark.parametrize(
    "text",
    [
        *(f'"{key}":{value}' for key in ("deadline", "timeout", "priority") for value in (10**400, "9" * 4000, "NaN")),
        *('"deadline":1e400', '"deadline":-1e308', '"deadline":1e308', '"sequence_id":' + "9" * 4000),
        *('"timeout":"' + "9" * 5000 + '"', '"timeout":"' + "0" * 5000 + '"'),
    ],
    ids=lambda text: text[:24],
)
def test_parameters_are_bounded_before_arithmetic(clients_server, text):
    body = f'{{"inputs":[{{"name":"x","datatype":"INT32","shape":[1],"data":[1]}}],"parameters":{{{text}}}}}'
    status, answer = clients_server.post("/v2/models/any/infer", body.encode())
    assert status in (200, 400) if '"000' in text else status == 400, answer


@pytest.mark.parametrize("digits", ["9" * 8000, "0" * 8000, "0" * 5000 + "7", "-1", "1_0", "٣"])
def test_numbers_in_headers_are_bounded(clients_server, digits):
    request = json.dumps({"inputs": [entry([1.0])]})
    with socket.create_connection(("127.0.0.1", clients_server.port), timeout=60) as client:
        head = f"POST /v2/models/any/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(request)}\r\n"
        client.sendall(f"{head}Inference-Header-Content-Length: {digits}\r\n\r\n{request}".encode())
        answer = http.client.HTTPResponse(client)
        answer.begin()
        assert answer.status == 400
    for number in (digits, f"{'0' * 6000}{len(request)}"):
        with socket.create_connection(("127.0.0.1", clients_server.port), timeout=60) as client:
            head = f"POST /v2/models/any/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {number}\r\n\r\n{request}"
            client.sendall(head.encode())
            client.shutdown(socket.SHUT_WR)
            answer = client.makefile("rb").readline()
            assert not answer.startswith(b"HTTP/1.1 5"), answer
    assert outputs(infer(clients_server, entry([1.0]))) == {"result": [1.0]}


# ---- what else is in a request ----


def test_an_id_that_is_null_is_none(clients_server):
    status, answer = infer(clients_server, entry([1.0]), id=None)
    assert (status, "id" in answer) == (200, False), answer


def test_a_request_that_is_sent_as_text_is_understood(clients_server):
    body = json.dumps({"inputs": [entry([1.0])]}).encode()
    plain = {"Content-Type": "text/plain;charset=UTF-8"}  # as fetch() of a browser sends a string
    status, answer = clients_server.post("/v2/models/any/infer", body, plain)
    assert (status, answer["outputs"][0]["data"]) == (200, [1.0])
    for text in ("{not json", '{"inputs": "of a text"}', "[1]", '{"a": 1}'):
        status, answer = clients_server.post("/v2/models/any/infer", text.encode(), plain)
        assert (status, answer["outputs"][0]["data"]) == (200, [text])
    raw = plain | {"Inference-Header-Content-Length": "0"}
    status, answer = clients_server.post("/v2/models/kind/infer", body, raw)
    assert answer["outputs"][0]["data"][0].startswith("str '{")


def test_a_client_that_asks_for_classes_gets_the_largest_values_first(clients_server):
    wanted = [{"name": "result", "parameters": {"classification": 3}}]
    status, answer = infer(clients_server, entry([1.0, 2.5]), outputs=wanted)
    assert status == 200, answer
    (output,) = answer["outputs"]
    assert (output["datatype"], output["data"]) == ("BYTES", ["2.500000:1", "1.000000:0"])
    for wrong in (-1, True, "3"):
        wanted = [{"name": "result", "parameters": {"classification": wrong}}]
        status, answer = infer(clients_server, entry([1.0, 2.5]), outputs=wanted)
        assert (status, "is a number of classes" in answer["error"]) == (400, True), answer


@pytest.mark.parametrize(
    "name",
    [
        "state",
        "timeout",
        "priority",
        "deadline",
        "result",
        "request_size",
        "node_name",
        "req_id",
        "finish",
        "context",
        "event",
        "parameters",
        "parts",
        "data",
        "sequence_start",
        "tensor_rows",
    ],
)
def test_an_input_may_have_any_name(clients_server, name):
    assert outputs(infer(clients_server, entry([1.0, 2.0], name=name))) == {"result": [1.0, 2.0]}


def test_a_model_with_an_input_named_state_is_served(clients_server):
    given = [entry([1.0], name="input"), entry([10.0], name="state"), entry([5.0], name="sr")]
    assert outputs(infer(clients_server, *given, model="vad")) == {"output": [11.0], "stateN": [15.0]}
    status, answer = clients_server.post("/v2/models/vad/generate", {"input": 1.0, "state": 10.0, "sr": 5.0})
    assert (status, answer["output"], answer["stateN"]) == (200, 11.0, 15.0)


# ---- HTTP/1.1 as other clients speak it ----

UPGRADES = {
    "Java's HttpClient": "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\n",
    "curl --http2": "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAA\r\n",
    "a WebSocket": "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    "another protocol": "connection: keep-alive, upgrade\r\nupgrade: TLS/1.0, IRC/6.9\r\n",
}


@contextlib.contextmanager
def connected(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client, client.makefile("rb") as stream:
        yield client, stream


def read_answer(stream) -> tuple[int, bytes]:
    status = int(stream.readline().split()[1])
    length = 0
    while (line := stream.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return status, stream.read(length)


@pytest.mark.parametrize("headers", UPGRADES.values(), ids=UPGRADES)
@pytest.mark.parametrize("framing", ["length", "chunks", "large", "byte by byte"])
def test_an_upgrade_is_ignored_and_the_request_is_answered(clients_server, headers, framing):
    values = [float(number) for number in range(40_000 if framing == "large" else 3)]
    body = json.dumps({"inputs": [entry(values)]}).encode()
    head = f"POST /v2/models/any/infer HTTP/1.1\r\nHost: x\r\n{headers}".encode()
    if framing == "chunks":
        data = head + b"Transfer-Encoding: chunked\r\n\r\n"
        for start in range(0, len(body), 20):
            data += b"%x\r\n%s\r\n" % (len(body[start : start + 20]), body[start : start + 20])
        data += b"0\r\n\r\n"
    else:
        data = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with connected(clients_server) as (client, got):
        for _ in range(2):  # the connection is usable afterwards
            if framing == "byte by byte":
                for index in range(len(data)):
                    client.sendall(data[index : index + 1])
            else:
                client.sendall(data)
            status, answer = read_answer(got)
            assert status == 200, answer
            assert json.loads(answer)["outputs"][0]["data"] == values


def test_a_get_with_an_upgrade_is_answered(clients_server):
    with connected(clients_server) as (client, got):
        client.sendall(f"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n{UPGRADES['curl --http2']}\r\n".encode() * 2)
        assert read_answer(got) == (200, b'{"live": true}')
        assert read_answer(got) == (200, b'{"live": true}')


def test_connect_is_refused(clients_server):
    with socket.create_connection(("127.0.0.1", clients_server.port), timeout=60) as client:
        client.sendall(b"CONNECT example.org:80 HTTP/1.1\r\nHost: example.org\r\n\r\n")
        assert client.makefile("rb").readline().split()[1] in (b"400", b"405")


# ---- strings in models of onnxruntime ----


@pytest.fixture(scope="module")
def strings(tmp_path_factory):
    onnx = pytest.importorskip("onnx", reason="needs onnx")
    pytest.importorskip("hami_onnx", reason="needs hami-onnx")
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    from conftest import Running

    helper, text = onnx.helper, onnx.TensorProto.STRING
    infos = [helper.make_tensor_value_info(name, text, ["n"]) for name in ("texts", "same")]
    graph = helper.make_graph([helper.make_node("Identity", ["texts"], ["same"])], "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = tmp_path_factory.mktemp("strings") / "same.onnx"
    onnx.save(model, path)
    running = Running({"same": {"source": {"backend": "OnnxTensor", "model": str(path)}}})
    yield running
    running.close()


def test_a_string_model_is_served_over_http(strings):
    texts = ["grüß", "", "日本", "b'x'"]
    assert outputs(infer(strings, entry(texts, "BYTES", name="texts"), model="same")) == {"same": texts}
    data = np.array([text.encode() for text in texts], object)
    wire = b"".join(len(each).to_bytes(4, "little") + each for each in data)
    head = {"name": "texts", "datatype": "BYTES", "shape": [4], "parameters": {"binary_data_size": len(wire)}}
    sent = json.dumps({"inputs": [head]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(sent))}
    assert outputs(strings.post("/v2/models/same/infer", sent + wire, headers)) == {"same": texts}
    sent = json.dumps({"inputs": [{**head, "shape": [1], "parameters": {"binary_data_size": 5}}]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(sent))}
    status, answer = strings.post("/v2/models/same/infer", sent + b"\1\0\0\0\xff", headers)
    assert (status, "UTF-8" in answer["error"]) == (400, True), answer


def test_a_deadline_in_the_future_is_kept(clients_server):
    status, _ = infer(clients_server, entry([1.0]), parameters={"deadline": time.time() + 60})
    assert status == 200


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}")
    return found


def test_curl_asks_for_http_2_and_is_answered(clients_server, tmp_path):
    body = json.dumps({"inputs": [entry([1.5] * 10_000)]})
    (tmp_path / "body").write_text(body)
    url = f"http://127.0.0.1:{clients_server.port}/v2/models/any/infer"
    options = ["--http2", "--fail-with-body", "--silent", "--show-error", "--data-binary", f"@{tmp_path / 'body'}"]
    for more in ([], ["--header", "Transfer-Encoding: chunked"], ["--header", "Expect: 100-continue"]):
        done = subprocess.run([program("curl"), *options, *more, url], capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done
        assert json.loads(done.stdout)["outputs"][0]["data"] == [1.5] * 10_000


JAVA = """
import java.net.URI;
import java.net.http.*;
import java.util.*;
import java.util.concurrent.CompletableFuture;

class Client {
    public static void main(String[] arguments) throws Exception {
        var client = HttpClient.newHttpClient();
        var request = HttpRequest.newBuilder(URI.create(arguments[0]))
            .POST(HttpRequest.BodyPublishers.ofString(arguments[1])).build();
        var answers = new ArrayList<CompletableFuture<HttpResponse<String>>>();
        for (int number = 0; number < 20; number++) {
            answers.add(client.sendAsync(request, HttpResponse.BodyHandlers.ofString()));
        }
        for (var answer : answers) {
            System.out.println(answer.get().statusCode() + " " + answer.get().body());
        }
    }
}
"""


def test_the_client_of_java_is_answered(clients_server, tmp_path):
    program("javac")
    (tmp_path / "Client.java").write_text(JAVA)
    url = f"http://127.0.0.1:{clients_server.port}/v2/models/any/infer"
    command = [program("java"), "Client.java", url, json.dumps({"inputs": [entry([1.5])]})]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 20
    assert {(line[:3], json.loads(line[4:])["outputs"][0]["data"][0]) for line in lines} == {("200", 1.5)}
