"""POST /NAME: plain JSON, forms, pictures and text in; plain JSON out, or the answer as its own content type."""

from __future__ import annotations

import base64
import json
import tempfile
from datetime import date

import hami
import numpy as np
import pytest

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
BOUNDARY = "----hami"


@hami.register
class TestKinds(hami.Backend):
    """The types of the values of a request."""

    def forward(self, batch):
        for item in batch:
            keys = {key: item[key] for key in ("data", "text", "image", "n") if key in item}
            item["result"] = {key: type(value).__name__ for key, value in keys.items()}


@hami.register
class TestAnswers(hami.Backend):
    """A value of each kind that a model may return."""

    def forward(self, batch):
        for item in batch:
            item["result"] = {
                "array": np.array([[1.5, np.nan]], np.float32),
                "nothing": None,
                "boxes": [{"label": "cat", "score": np.float32(0.5), "at": (1, 2)}],
                "bytes": b"\xff",
                "text": "größer",
            }


@hami.register
class TestLeaks(hami.Backend):
    """Raises messages as libraries write them."""

    def forward(self, batch):
        for item in batch:
            item.fail(OSError(LEAKS[item["data"]]))


@hami.register
class TestForms(hami.Backend):
    """A value that JSON has no form for, or whose text UTF-8 cannot represent."""

    def forward(self, batch):
        values = {"object": object(), "stream": (each for each in "ab"), "half": "\ud800", "time": date(2026, 1, 2)}
        for item in batch:
            item["result"] = values[item["data"]]


LEAKS = {
    "path": f"cannot open '{tempfile.gettempdir()}/private/model.onnx', see /v2/health or https://example.org/usr/a",
    "trace": 'failed in a worker: Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    secret()',
}


@pytest.fixture(scope="module")
def plain():
    from conftest import Running

    tensor = {"name": "x", "datatype": "FP32", "shape": [-1, 2]}
    running = Running(
        {
            "echo": "Identity",
            "kinds": "TestKinds",
            "answers": "TestAnswers",
            "rows": {"source": "Identity", "inputs": [tensor], "outputs": [{**tensor, "name": "y"}]},
            "two": {
                "source": "TestAddSub",
                "inputs": [{"name": f"INPUT{each}", "datatype": "INT32", "shape": [-1]} for each in (0, 1)],
                "outputs": [{"name": f"OUTPUT{each}", "datatype": "INT32", "shape": [-1]} for each in (0, 1)],
            },
            "picture": {"source": "Identity", "inputs": [{"name": "image", "datatype": "BYTES", "shape": [1]}]},
            "raises": "TestRaises",
            "leaks": "TestLeaks",
            "forms": "TestForms",
        },
        max_body=100_000,
    )
    yield running
    running.close()


def form(**parts: bytes | tuple[str, bytes]) -> tuple[bytes, dict[str, str]]:
    """Return the body and the header of a form; a part with a type is a file."""
    lines = []
    for name, part in parts.items():
        kind, data = part if isinstance(part, tuple) else ("", part)
        lines.append(f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"'.encode())
        lines.append(f'; filename="a"\r\nContent-Type: {kind}'.encode() if kind else b"")
        lines.append(b"\r\n\r\n" + data + b"\r\n")
    return b"".join(lines) + f"--{BOUNDARY}--\r\n".encode(), {
        "Content-Type": f"multipart/form-data; boundary={BOUNDARY}"
    }


def plain_json(body: object) -> tuple[bytes, dict[str, str]]:
    return json.dumps(body).encode(), {"Content-Type": "application/json"}


def base64_of(data: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(data).decode()}


@pytest.mark.parametrize(
    "value",
    [
        {"a": {"b": [1, None, {"c": "ü"}]}, "d": True},
        [1, "two", None],
        "text",
        None,
        2.5,
        {"picture": base64_of(b"\x00\xff"), "n": 1},
        {"long": ["x" * 100] * 500, "n": 1},
    ],
)
def test_values_of_json_reach_a_model_and_come_back_as_they_are(plain, value):
    assert plain.post("/echo", *plain_json(value)) == (200, value)


@pytest.mark.parametrize(
    ("given", "status", "answer"),
    [
        ("object", 500, {"error": "TypeError: a result of type object has no form in JSON"}),
        ("stream", 500, {"error": "TypeError: a result of type generator has no form in JSON"}),
        ("half", 200, "\ud800"),
        ("time", 200, "2026-01-02"),
    ],
)
def test_a_result_of_another_class_is_its_text_or_an_error(plain, given, status, answer):
    assert plain.post("/forms", *plain_json(given)) == (status, answer)


def test_a_model_gets_text_as_str_and_base64_as_bytes(plain):
    given = {"text": "a", "image": base64_of(PNG), "n": 1}
    assert plain.post("/kinds", *plain_json(given)) == (
        200,
        {"data": "dict", "text": "str", "image": "bytes", "n": "int"},
    )
    url = {"base64": "data:image/png;base64," + base64.b64encode(PNG).decode()}
    assert plain.post("/kinds", *plain_json({"image": url})) == (200, {"data": "bytes", "image": "bytes"})


def test_an_answer_has_no_json_inside_its_json(plain):
    status, answer = plain.post("/answers", *plain_json({}))
    assert (status, answer) == (
        200,
        {
            "array": [[1.5, None]],
            "nothing": None,
            "boxes": [{"label": "cat", "score": 0.5, "at": [1, 2]}],
            "bytes": base64_of(b"\xff"),
            "text": "größer",
        },
    )


@pytest.mark.parametrize("given", [{"x": [[1, 2], [3, None]]}, [[1, 2], [3, None]], {"x": [1, 2, 3, None]}])
def test_numbers_take_the_type_and_the_shape_that_the_model_declares(plain, given):
    assert plain.post("/rows", *plain_json(given)) == (200, {"y": [[1.0, 2.0], [3.0, None]]})


def test_one_row_needs_no_batch_axis(plain):
    assert plain.post("/rows", *plain_json({"x": [1, 2]})) == (200, {"y": [[1.0, 2.0]]})


def test_the_bytes_of_a_tensor_are_an_input(plain):
    data = np.array([[1, 2]], "<f4").tobytes()
    assert plain.post("/rows", data, {"Content-Type": "application/octet-stream"}) == (200, {"y": [[1.0, 2.0]]})
    assert plain.post("/rows", *form(x=("application/octet-stream", data))) == (200, {"y": [[1.0, 2.0]]})


def test_the_fields_of_a_form_are_inputs_by_name(plain):
    assert plain.post("/two", *form(INPUT0=b"[1, 2]", INPUT1=b"[3, 4]")) == (
        200,
        {"OUTPUT0": [4, 6], "OUTPUT1": [-2, -2]},
    )
    given = form(text=b"a", image=("image/png", PNG), n=("application/json", b"1"))
    assert plain.post("/kinds", *given) == (200, {"data": "dict", "text": "str", "image": "bytes", "n": "int"})


@pytest.mark.parametrize("model", ["echo", "picture"])
@pytest.mark.parametrize("send", [lambda: (PNG, {"Content-Type": "image/png"}), lambda: form(image=("image/png", PNG))])
def test_a_picture_is_answered_as_base64_or_as_itself(plain, model, send):
    body, headers = send()
    assert plain.post(f"/{model}", body, headers) == (200, base64_of(PNG))
    for accept, kind in (("image/*", "image/png"), ("application/octet-stream", "application/octet-stream")):
        status, answered, content = plain.call("POST", f"/{model}", body, {**headers, "Accept": accept})
        assert (status, answered["Content-Type"], content) == (200, kind, PNG)


def test_text_is_answered_as_text_where_the_client_prefers_it(plain):
    for accept, kind in (("text/plain, */*;q=0.5", "text/plain; charset=utf-8"), ("*/*", "application/json")):
        status, headers, content = plain.call(
            "POST", "/echo", "größer".encode(), {"Content-Type": "text/plain", "Accept": accept}
        )
        assert (status, headers["Content-Type"]) == (200, kind)
        assert content == ("größer".encode() if "text" in kind else "größer")


def test_curl_needs_no_header_for_json(plain):
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert plain.post("/echo", b' {"a": [1]}', headers) == (200, [1])


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "words"),
    [
        (
            "/echo",
            PNG,
            {},
            415,
            "no Content-Type, and the body is image/png: send Content-Type: image/png",
        ),
        ("/echo", b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "multipart/form-data, image/*"),
        ("/echo", b"<a/>", {"Content-Type": "application/xml"}, 415, 'the Content-Type is "application/xml"; this'),
        ("/echo", b"{", {"Content-Type": "application/json"}, 400, "the request is not valid JSON"),
        ("/echo", b"[" * 50_000, {"Content-Type": "application/json"}, 400, "nested too deep"),
        ("/echo", b"[" * 300 + b"]" * 300, {"Content-Type": "application/json"}, 400, "nested more than 256 times"),
        ("/echo", b'"\\ud800"', {"Content-Type": "application/json"}, 400, "not valid Unicode"),
        ("/echo", b'{"base64": "%"}', {"Content-Type": "application/json"}, 400, "has the base64 of bytes"),
        ("/echo", b"x", {"Content-Type": "multipart/form-data"}, 400, "has no boundary"),
        ("/echo", b"x", {"Content-Type": "multipart/form-data; boundary=a"}, 400, "not valid multipart/form-data"),
        ("/echo", b"--a\r\n", {"Content-Type": "multipart/form-data; boundary=a"}, 400, "before its last boundary"),
        ("/echo", b"\xff", {"Content-Type": "text/plain"}, 400, "not valid UTF-8"),
        ("/echo", b"x" * 100_001, {"Content-Type": "text/plain"}, 413, "this server accepts 100000"),
        ("/echo", b"[1]", {"Content-Type": "application/json", "Accept": "image/*"}, 406, "can be application/json"),
        ("/rows", PNG, {"Content-Type": "image/png"}, 400, "the body is a picture, image/png"),
        ("/rows", b'{"x": [[1, 2], [3]]}', {"Content-Type": "application/json"}, 400, "not a regular list"),
        ("/rows", b'{"x": [[1, "a"]]}', {"Content-Type": "application/json"}, 400, 'is FP32, and has the element "a"'),
        ("/rows", b"[[1, 2, 3]]", {"Content-Type": "application/json"}, 400, "has the shape [-1, 2], got [1, 3]"),
        ("/two", b"[1]", {"Content-Type": "application/json"}, 400, "has the inputs INPUT0, INPUT1"),
        ("/two", b'{"INPUT0": [1]}', {"Content-Type": "application/json"}, 400, 'needs the input "INPUT1"'),
        ("/two", b'{"INPUT0": 1, "INPUT1": 1, "y": 1}', {"Content-Type": "application/json"}, 400, 'no input "y"'),
        (
            "/nothing",
            b"{}",
            {"Content-Type": "application/json"},
            404,
            'no model "nothing"; models: answers, echo',
        ),
        ("/raises", b"{}", {"Content-Type": "application/json"}, 500, "ZeroDivisionError"),
    ],
)
def test_an_error_says_what_to_send(plain, path, body, headers, status, words):
    found, answer = plain.post(path, body, headers)
    assert (found, answer.keys()) == (status, {"error"})
    assert words in answer["error"]


@pytest.mark.parametrize(
    ("leak", "text"),
    [
        ("path", "OSError: cannot open '…/model.onnx', see /v2/health or https://example.org/usr/a"),
        ("trace", "OSError: failed in a worker:"),
    ],
)
def test_an_answer_has_neither_places_of_files_nor_a_traceback(plain, leak, text):
    status, answer = plain.post("/leaks", *plain_json(leak))
    assert (status, answer["error"].split("\nin backend")[0]) == (500, text)


def test_a_version_has_a_path_and_parameters_are_in_the_query(plain):
    assert plain.post("/models/echo/versions/1", *plain_json([1])) == (200, [1])
    assert plain.post("/models/echo", *plain_json([1])) == (200, [1])
    assert plain.post("/models/echo/versions/9", *plain_json([1]))[0] == 404
    assert plain.post("/echo?timeout=soon", *plain_json([1])) == (
        400,
        {"error": f"the parameter timeout is an int from 0 to {2**63}, got soon"},
    )


def test_a_name_that_is_free_is_not_a_page(plain):
    assert plain.get("/nothing") == (404, {"error": "there is no /nothing"})
    assert plain.get("/echo")[0] == 404
    assert plain.post("/v2/other", *plain_json([1]))[0] == 404


def test_keys_that_the_core_reads_are_only_in_data(plain):
    given = {"timeout": 1, "hami.visits": "x", "state": {}, "a": 1}
    assert plain.post("/echo", *plain_json(given)) == (200, given)


def test_a_request_of_the_protocol_that_is_a_picture_says_which_type_to_send(plain):
    for headers, words in (
        ({}, "no Content-Type, and the body is image/png: send Content-Type: image/png"),
        ({"Content-Type": "multipart/form-data; boundary=a"}, "send the form to POST /NAME"),
    ):
        status, answer = plain.post("/v2/models/echo/infer", PNG, headers)
        assert (status, words in answer["error"]) == (400, True), answer
    status, answer = plain.post("/v2/models/echo/infer", b"\xff", {"Content-Type": "application/octet-stream"})
    assert status == 400
    assert "bytes that are not UTF-8" in answer["error"]
