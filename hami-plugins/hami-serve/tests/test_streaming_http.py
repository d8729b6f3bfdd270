"""The generate extension: an answer as JSON, and in parts as server-sent events."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import closing, contextmanager

import pytest
from conftest import FLOODS, Flood

WORDS = "/v2/models/words/generate"
REPEAT = {"IN": [4, 2, 0, 1], "DELAY": [0, 0, 0, 0], "WAIT": 0}


def events(content: bytes) -> list[dict[str, object]]:
    """Return the data of all events of a body."""
    *found, rest = content.decode().split("\n\n")
    assert rest == ""
    assert all(each.startswith("data: ") for each in found)
    return [json.loads(each.removeprefix("data: ")) for each in found]


def streamed(server, path: str, body: object) -> list[dict[str, object]]:
    status, headers, content = server.call("POST", path, body)
    assert (status, headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8"), content
    return events(content)


def test_each_part_is_an_event_and_the_result_is_the_last_one(server):
    found = streamed(server, f"{WORDS}_stream", {"text_input": "to be or", "id": "é/1"})
    assert [each["text_output"] for each in found] == ["to", "be", "or", "to be or"]
    assert found[0] == {"model_name": "words", "model_version": "1", "id": "é/1", "text_output": "to"}


def test_a_model_that_returns_nothing_after_its_parts_ends_with_the_last_part(server):
    found = streamed(server, "/v2/models/repeat_int32/versions/1/generate_stream", REPEAT)
    assert [(each["OUT"], each["IDX"]) for each in found] == [(4, 0), (2, 1), (0, 2), (1, 3)]
    assert streamed(server, "/v2/models/repeat_int32/generate_stream", {**REPEAT, "IN": [], "DELAY": []}) == []


def test_a_model_without_parts_is_one_event(server):
    assert streamed(server, "/v2/models/any/generate_stream", {"x": [1.5, 2]}) == [
        {"model_name": "any", "model_version": "1", "result": [1.5, 2.0]}
    ]


def test_a_very_long_part_is_one_event(server):
    """It is sent in pieces; the chunk has the length of all of them."""
    text = "é" * 1_600_000
    (found,) = streamed(server, "/v2/models/any/generate_stream", {"x": text})
    assert found["result"] == text


def test_a_model_without_parts_that_returns_none_is_one_event_too(server):
    """Only a model that is declared as decoupled may answer with nothing."""
    answer = {"model_name": "nothing", "model_version": "1", "result": "null"}
    assert server.post("/v2/models/nothing/generate", {"x": ""}) == (200, answer)
    assert streamed(server, "/v2/models/nothing/generate_stream", {"x": ""}) == [answer]
    parts = streamed(server, "/v2/models/nothing/generate_stream", {"x": "ab"})
    assert [each["result"] for each in parts] == [97, 98]


@pytest.mark.parametrize("value", ["text", 7, 0.5, True, ["a", "b"], [1, 2], [1.0, 2.5], [True, False]])
def test_generate_answers_once_with_values_of_the_same_type(server, value):
    status, answer = server.post("/v2/models/any/generate", {"x": value, "parameters": {"timeout": 10_000_000}})
    assert (status, answer) == (200, {"model_name": "any", "model_version": "1", "result": value})


def test_generate_with_a_model_of_parts_answers_with_its_result(server):
    assert server.post(WORDS, {"text_input": "to be"})[1]["text_output"] == "to be"


def test_values_take_the_shape_that_the_model_declares(server):
    numbers = list(range(16))
    status, answer = server.post("/v2/models/simple/generate", {"INPUT0": numbers, "INPUT1": numbers, "beam": 3})
    assert (status, answer["OUTPUT0"], answer["OUTPUT1"]) == (200, [2 * number for number in numbers], [0] * 16)


@pytest.mark.parametrize(
    ("model", "body", "message"),
    [
        ("words", b"{", "the request is not valid JSON"),
        ("words", [], "the request is a JSON object"),
        ("words", {}, "the request has no inputs"),
        ("words", {"text_input": {"a": 1}}, '"text_input" is a number, a text, true, false or a flat list of them'),
        ("words", {"text_input": [["a"]]}, '"text_input" is a number, a text, true, false or a flat list of them'),
        ("words", {"text_input": None}, '"text_input" is a number, a text, true, false or a flat list of them'),
        ("words", {"text_input": 7}, 'input "text_input" is BYTES; its elements are strings'),
        ("words", {"text_input": ["a", "b"]}, 'input "text_input" of model "words" has the shape [1, 1], got [2]'),
        ("words", {"text_input": "a", "id": 1}, "the id of a request is a string"),
        ("words", {"text_input": "a", "parameters": [1]}, "the parameters of the request are an object"),
        ("words", {"text_input": "a", "parameters": {"timeout": -1}}, "the parameter timeout is an int"),
        ("any", {"x": [1, "a"]}, "its elements are strings, got 1"),
        ("any", {str(number): 1 for number in range(1025)}, "at most 1024 inputs, got 1025"),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["generate", "generate_stream"])
def test_a_bad_request_is_a_status_with_a_sentence_before_any_event(server, kind, model, body, message):
    status, answer = server.post(f"/v2/models/{model}/{kind}", body)
    assert (status, message in answer["error"]) == (400, True), answer


def test_an_error_before_the_first_part_has_its_status(server):
    assert server.post("/v2/models/absent/generate_stream", {"x": 1})[0] == 404
    status, answer = server.post(f"{WORDS}_stream", {"text_input": "fail"})
    assert (status, answer["error"].partition("\n")[0]) == (500, "ValueError: this word is an error")


def test_an_error_after_a_part_is_the_last_event(server):
    found = streamed(server, f"{WORDS}_stream", {"text_input": "two words fail"})
    assert [each.get("text_output") for each in found] == ["two", "words", None]
    assert found[-1]["error"].startswith("ValueError: this word is an error")


def test_the_timeout_of_a_request_ends_its_stream(server):
    body = {"IN": [1, 2], "DELAY": [0, 600], "WAIT": 0, "parameters": {"timeout": 200_000}}
    first, last = streamed(server, "/v2/models/repeat_int32/generate_stream", body)
    assert first["OUT"] == 1
    assert "the request timed out: its limit of 200ms passed" in last["error"]


@contextmanager
def flooded(server, name: str):
    """Ask for a stream that the client does not read; yield the connection."""
    FLOODS[name] = Flood()
    body = json.dumps({"x": 1}).encode()
    head = f"POST /v2/models/{name}/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with closing(socket.create_connection(("127.0.0.1", server.port), timeout=60)) as client:
        client.sendall(head + body)
        assert client.recv(1)
        yield client


def wait_until_it_pauses(server, flood: Flood) -> None:
    """Return when no part was delivered during 50 other requests."""
    while True:
        before = flood.parts
        for _ in range(50):
            assert server.get("/v2/health/live")[0] == 200
        if flood.parts == before:
            return


def test_a_model_waits_for_a_client_that_reads_slowly(start):
    server = start({"slow": {"backend": "TestFlood", "flood": "slow"}})
    with flooded(server, "slow") as client:
        wait_until_it_pauses(server, FLOODS["slow"])
        assert FLOODS["slow"].parts < 4096
        end = b""
        while end != b"0\r\n\r\n":
            received = client.recv(1 << 20)
            assert received
            end = (end + received)[-5:]
        assert FLOODS["slow"].parts == 4096


def test_a_client_that_leaves_its_stream_ends_the_model(start):
    server = start({"left": {"backend": "TestFlood", "flood": "left", "parts": 1 << 30}})
    with flooded(server, "left"):
        wait_until_it_pauses(server, FLOODS["left"])
    assert FLOODS["left"].ended.wait(60)
    metrics = server.get("/metrics")[1].decode()
    assert 'hami_serve_requests_in_flight{model="left",version="1"} 0.0' in metrics


def test_a_client_that_leaves_before_the_first_part_ends_the_model(start, gate):
    waiting = gate("before")
    server = start({"before": {"backend": "TestGate", "gate": "before"}})
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/v2/models/before/generate_stream", b'{"x": 1}')
    assert waiting.begun.acquire(timeout=30)
    connection.close()
    assert waiting.cancelled.wait(30)
