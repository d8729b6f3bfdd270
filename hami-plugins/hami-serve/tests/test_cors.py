"""CORS: pages of named origins may use the server and read its answers, errors too; others may not."""

from __future__ import annotations

import http.client
import signal
from contextlib import closing

import hami
import pytest
from conftest import Running
from test_command import serving
from test_native_door import BINARY, FLOATS, REQUESTS, SIZE, exchange, of_bytes, request, tensor

from hami_serve.cors import checked_origins
from hami_serve.native_door import NativeDoor

PAGE = "https://app.example.org"
BODY = b'{"a": [1]}'
JSON = {"Content-Type": "application/json"}
TOKEN = {"Authorization": "Bearer t0k3n"}
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, content-type"}


@pytest.fixture(scope="module", params=["named", "any"])
def port(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cors")
    (folder / "token").write_text("t0k3n\n")
    options = ("--token-file", "token", "--cors", "*") if request.param == "any" else ("--cors", PAGE)
    with serving(folder, "Identity", *options) as (process, port):
        yield request.param, port
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def ask(port: int, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> http.client.HTTPResponse:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        answer.read()
        return answer


def test_a_preflight_request_needs_no_token(port):
    kind, port = port
    answer = ask(port, "OPTIONS", "/Identity", {"Origin": PAGE, **PREFLIGHT})
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, PAGE if kind == "named" else "*")
    assert "POST" in answer.headers["Access-Control-Allow-Methods"]
    assert answer.headers["Access-Control-Allow-Headers"] == "authorization, content-type"
    assert answer.headers["Access-Control-Allow-Credentials"] is None


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/Identity", BODY, 200),
        ("POST", "/v2/models/Identity/infer", BODY, 400),
        ("POST", "/absent", BODY, 404),
        ("GET", "/absent", b"", 404),
        ("GET", "/v2/models/Identity", b"", 200),
    ],
)
def test_a_page_of_an_origin_reads_answers_and_errors(port, method, path, body, status):
    kind, port = port
    answer = ask(port, method, path, {"Origin": PAGE, "Sec-Fetch-Site": "cross-site", **JSON, **TOKEN}, body)
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (status, PAGE if kind == "named" else "*")
    assert "Inference-Header-Content-Length" in answer.headers["Access-Control-Expose-Headers"]
    assert answer.headers["Access-Control-Allow-Credentials"] is None
    assert "Origin" in answer.headers["Vary"]


def test_the_token_is_checked_and_its_error_can_be_read(port):
    kind, port = port
    answer = ask(port, "POST", "/Identity", {"Origin": PAGE, **JSON}, BODY)
    assert answer.status == (200 if kind == "named" else 401)
    assert answer.headers["Access-Control-Allow-Origin"] is not None


def test_another_page_gets_nothing(port):
    kind, port = port
    if kind == "any":
        pytest.skip("every page may use this server")
    headers = {"Origin": "https://evil.example", **JSON}
    answers = [
        ask(port, "OPTIONS", "/Identity", {**headers, **PREFLIGHT}),
        ask(port, "POST", "/Identity", headers, BODY),
        ask(port, "POST", "/Identity", {**headers, "Origin": PAGE + ".evil.example"}, BODY),
    ]
    assert [answer.status for answer in answers] == [400, 403, 403]
    assert {answer.headers["Access-Control-Allow-Origin"] for answer in answers} == {None}


def test_a_program_without_an_origin_needs_nothing(port):
    _, port = port
    answer = ask(port, "POST", "/Identity", {**JSON, **TOKEN}, BODY)
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, None)


@pytest.mark.parametrize("origin", ["app.example.org", "https://a.b/path", "null", "https://a b", "https://a/"])
def test_an_origin_that_is_none_is_an_error_that_shows_one(origin):
    with pytest.raises(hami.ConfigError, match=r'such as "https://app\.example\.org", without a path'):
        checked_origins([origin])


OTHER = "https://evil.example"


@pytest.mark.parametrize("cors", [[PAGE], ["*"], ["https://a.example", PAGE]], ids=["one", "any", "two"])
def test_both_doors_write_the_same_headers_for_pages(cors):
    both = [Running({"any": "Identity"}, door=door, cors=cors) for door in ("python", "native")]
    try:
        plain = of_bytes(FLOATS, tensor("FP32", [4], **SIZE), **BINARY)
        for sent in (plain, REQUESTS["floats"], REQUESTS["half precision"], REQUESTS["too few"], REQUESTS["probe"]):
            for headers in ([], [f"Origin: {PAGE}"], [f"Origin: {OTHER}"], [f"Origin: {PAGE}", f"Origin: {OTHER}"]):
                given = sent.replace(b"Host: ", "".join(f"{each}\r\n" for each in headers).encode() + b"Host: ", 1)
                python, native = (exchange(door.port, given) for door in both)
                assert native == python
    finally:
        for each in both:
            each.close()


@pytest.mark.parametrize("cors", [[PAGE], ["*"]], ids=["one", "any"])
def test_native_threads_answer_requests_of_pages_alone(start, monkeypatch, cors):
    server = start({"any": "Identity"}, door="native", cors=cors)
    left: list[object] = []
    monkeypatch.setattr(NativeDoor, "_start", lambda _, running: left.append(running))
    numbers = b'{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}]}'
    answer = exchange(
        server.port, request(numbers, "/v2/models/any/infer", f"Origin: {PAGE}", "Sec-Fetch-Site: cross-site")
    )
    allowed = PAGE if cors == [PAGE] else "*"
    assert f"\r\naccess-control-allow-origin: {allowed}\r\n".encode() in answer
    assert not left
