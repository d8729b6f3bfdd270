"""Elements of BYTES reach a model as `str` at every door, and as `bytes` if the model declares them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from typing import Any

import hami
import hami.config
import numpy as np
import pytest
from conftest import Running, RunningGrpc

from hami_serve import AllRounder
from hami_serve.datatypes import STEP, bytes_of_array
from hami_serve.errors import ModelFailed
from hami_serve.grpc_messages import message

grpc = pytest.importorskip("grpc")
pytest.importorskip("grpc_health", reason="needs hami-serve[grpc]")
pytest.importorskip("grpc_reflection", reason="needs hami-serve[grpc]")


@hami.register
class TestTypes(hami.Backend):
    """The types of `data` and of the elements of `x`, and the text of both."""

    def forward(self, batch):
        for item in batch:
            data, elements = item["data"], np.ravel(item.get("x", np.empty(0, object)))
            item["result"] = repr([data.tolist() if isinstance(data, np.ndarray) else data, elements.tolist()])


def declared(datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"source": "TestTypes", "inputs": [{"name": "x", "datatype": datatype, "shape": shape}]}


MODELS = {
    "plain": "TestTypes",
    "text": declared("STRING", [-1]),
    "table": declared("STRING", [-1, 1]),
    "bytes": declared("BYTES", [-1]),
    "nameless": {"source": "TestTypes", "inputs": ["x"]},
}


class Doors:
    """The servers of the same models, and the requests of each door: the status, and the result or the error."""

    def __init__(self) -> None:
        self.rounder = AllRounder(MODELS)
        self.http, self.grpc = Running(self.rounder), RunningGrpc(self.rounder)
        self.channel = grpc.insecure_channel(self.grpc.url)

    def close(self) -> None:
        self.channel.close()
        self.http.close()
        self.grpc.close()
        self.rounder.close()

    def post(self, model: str, kind: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, str]:
        status, answer = self.http.post(f"/v2/models/{model}/{kind}", body, headers or {})
        if status != 200:
            return status, answer["error"]
        if kind == "infer":
            return status, answer["outputs"][0]["data"][0]
        if kind == "generate_stream":
            answer = json.loads(answer.removeprefix(b"data: "))
        return status, answer["result"]

    def infer(self, request: Any) -> tuple[int, str]:
        method = self.channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=lambda each: each.SerializeToString(),
            response_deserializer=message("ModelInferResponse").FromString,
        )
        try:
            answer = method(request, timeout=60)
        except grpc.RpcError as error:
            return 400 if error.code() is grpc.StatusCode.INVALID_ARGUMENT else 500, error.details()
        raw = answer.raw_output_contents
        return 200, (raw[0][4:] if raw else answer.outputs[0].contents.bytes_contents[0]).decode()


def wire(texts: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(each)) + each for each in texts)


def shape_of(model: str, texts: list[bytes]) -> list[int]:
    return [len(texts), 1] if model == "table" else [len(texts)]


def as_json(doors: Doors, model: str, texts: list[bytes]) -> tuple[int, str]:
    given = [each.decode() for each in texts]
    entry = {"name": "x", "datatype": "BYTES", "shape": shape_of(model, texts), "data": given}
    return doors.post(model, "infer", {"inputs": [entry]})


def as_binary_data(doors: Doors, model: str, texts: list[bytes]) -> tuple[int, str]:
    data = wire(texts)
    entry = {"name": "x", "datatype": "BYTES", "shape": shape_of(model, texts)}
    head = json.dumps({"inputs": [{**entry, "parameters": {"binary_data_size": len(data)}}]}).encode()
    return doors.post(model, "infer", head + data, {"Inference-Header-Content-Length": str(len(head))})


def as_generate(doors: Doors, model: str, texts: list[bytes]) -> tuple[int, str]:
    return doors.post(model, "generate", {"x": [each.decode() for each in texts]})


def as_generate_stream(doors: Doors, model: str, texts: list[bytes]) -> tuple[int, str]:
    return doors.post(model, "generate_stream", {"x": [each.decode() for each in texts]})


def as_raw_contents(doors: Doors, model: str, texts: list[bytes]) -> tuple[int, str]:
    entry = {"name": "x", "datatype": "BYTES", "shape": shape_of(model, texts)}
    request = message("ModelInferRequest")(model_name=model, inputs=[entry], raw_input_contents=[wire(texts)])
    return doors.infer(request)


def as_typed_contents(doors: Doors, model: str, texts: list[bytes]) -> tuple[int, str]:
    entry = {"name": "x", "datatype": "BYTES", "shape": shape_of(model, texts), "contents": {"bytes_contents": texts}}
    return doors.infer(message("ModelInferRequest")(model_name=model, inputs=[entry]))


BINARY = (as_binary_data, as_raw_contents, as_typed_contents)
DOORS = {each.__name__: each for each in (as_json, as_generate, as_generate_stream, *BINARY)}
Door = Callable[[Doors, str, list[bytes]], tuple[int, str]]


@pytest.fixture(scope="module")
def doors() -> Iterator[Doors]:
    made = Doors()
    yield made
    made.close()


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("model", MODELS)
def test_text_is_str_at_every_door_unless_the_model_declares_bytes(doors: Doors, model: str, door: str) -> None:
    one, many = ["grüß"], ["grüß", "", "\0"]
    wanted: dict[str, list[Any]] = {"one": one, "many": many}
    if model == "bytes":
        wanted = {key: [each.encode() for each in texts] for key, texts in wanted.items()}
    assert DOORS[door](doors, model, [each.encode() for each in one]) == (200, repr([wanted["one"][0], wanted["one"]]))
    data = [[each] for each in wanted["many"]] if model == "table" else wanted["many"]
    assert DOORS[door](doors, model, [each.encode() for each in many]) == (200, repr([data, wanted["many"]]))


@pytest.mark.parametrize("door", BINARY)
@pytest.mark.parametrize("model", MODELS)
def test_bytes_that_are_not_text_are_refused_with_their_place(doors: Doors, model: str, door: Door) -> None:
    texts = [b"a", b"b\xff", b"c"]
    if model == "bytes":
        assert door(doors, model, texts) == (200, repr([texts, texts]))
        return
    assert door(doors, model, texts) == (
        400,
        'input "x": element 1 is not text in UTF-8: invalid start byte at byte 1; send text, or let the model declare '
        'the input with datatype = "BYTES"',
    )
    status, text = door(doors, model, [b"a"] * STEP + [b"\xe4"])
    assert (status, f"element {STEP} is" in text) == (400, True), text
    assert door(doors, model, [b"a"]) == (200, repr(["a", ["a"]]))


@pytest.mark.parametrize("model", MODELS)
def test_a_body_is_what_the_model_declares_else_what_its_type_says(doors: Doors, model: str) -> None:
    text, name = "grüß", "data" if model == "plain" else "x"
    plain = {"Content-Type": "text/plain; charset=utf-8"}
    for headers in (
        plain,
        {"Content-Type": "application/octet-stream"},
        {"Content-Type": "image/png"},
        {"Inference-Header-Content-Length": "0"},
    ):
        is_bytes = headers is not plain if model in ("plain", "nameless") else model == "bytes"
        value: Any = text.encode() if is_bytes else text
        found = doors.post(model, "infer", text.encode(), headers)
        assert found == (200, repr([value, [] if model == "plain" else [value]]))
        status, answer = doors.post(model, "infer", b"\xff", headers)
        if headers is plain or not is_bytes:
            assert (status, "UTF-8" in answer) == (400, True), answer
            assert headers is plain or answer.startswith(f'input "{name}": element 0 is not text in UTF-8'), answer
        else:
            assert status == 200


@pytest.mark.parametrize("model", MODELS)
def test_plain_json_and_forms_are_what_the_model_declares_else_as_they_come(doors: Doors, model: str) -> None:
    def post(body: bytes, kind: str) -> tuple[int, Any]:
        return doors.http.post(f"/{model}", body, {"Content-Type": kind})

    def form(of_file: str) -> bytes:
        return f'--b\r\nContent-Disposition: form-data; name="x"{of_file}\r\n\r\na\r\n--b--\r\n'.encode()

    multipart = "multipart/form-data; boundary=b"
    for body, kind, is_bytes in (
        (b'{"x": "a"}', "application/json", False),
        (b'{"x": {"base64": "YQ=="}}', "application/json", True),
        (form(""), multipart, False),
        (form('; filename="a.txt"'), multipart, True),
    ):
        is_bytes = is_bytes if model in ("plain", "nameless") else model == "bytes"
        status, found = post(body, kind)
        assert (status, found.startswith("[b'a'" if is_bytes else "['a'")) == (200, True), found
    status, found = post(b'{"x": {"base64": "/w=="}}', "application/json")
    assert status == (400 if model in ("text", "table") else 200)


def test_metadata_and_configuration_say_bytes_for_text_too(doors: Doors) -> None:
    for model in ("text", "bytes"):
        (given,) = doors.http.get(f"/v2/models/{model}")[1]["inputs"]
        assert given == {"name": "x", "datatype": "BYTES", "shape": [-1]}
        assert doors.http.get(f"/v2/models/{model}/config")[1]["input"][0]["data_type"] == "TYPE_STRING"


def test_a_datatype_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(hami.ConfigError, match=r"has the datatype 'TEXT'; known: BOOL, .*BYTES, STRING$"):
        AllRounder({"m": declared("TEXT", [1])})


@pytest.mark.parametrize(("datatype", "element"), [("STRING", ""), ("BYTES", b"")])
def test_the_warm_up_has_the_elements_of_requests(datatype: str, element: object) -> None:
    seen: list[Any] = []

    @hami.register
    class TestSeen(hami.Backend):
        def forward(self, batch):
            for item in batch:
                seen.append(item["x"].tolist())
                item["result"] = 1

    table = {**declared(datatype, [2]), "source": "TestSeen", "warmup": 1}
    AllRounder({"m": table}).close()
    assert seen == [[element] * 2]


def test_the_plugin_of_the_first_backend_says_what_data_is() -> None:
    remote = {"class": "Remote", "distribution": "hami-serve", "children": []}
    in_brackets = {"class": "Sequential", "distribution": None, "children": [remote]}
    other: dict[str, Any] = {"class": "Identity", "distribution": None, "children": []}
    for backend in (remote, in_brackets):
        for first, second, wanted in ((backend, other, "bytes"), (other, backend, None)):
            nodes = {"b": {"backends": [second], "next": []}, "a": {"backends": [first], "next": ["b"]}}
            assert hami.config.data_type({"nodes": nodes}) == wanted


def test_an_element_longer_than_its_length_can_say_is_a_fault_of_the_model():
    class Long(bytes):
        def __len__(self) -> int:
            return 1 << 32

    with pytest.raises(ModelFailed, match="an element of BYTES has 4294967296 bytes"):
        bytes_of_array("BYTES", np.array([Long()], object))
