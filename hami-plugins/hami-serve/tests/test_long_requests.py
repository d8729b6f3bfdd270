"""A long request is read and answered in steps on another thread, so that the server answers others meanwhile."""

from __future__ import annotations

import gzip
import json
import pkgutil
import random
import threading
import zlib
from pathlib import Path
from types import SimpleNamespace

import hami
import numpy as np
import pytest

from hami_serve import http_body, json_steps
from hami_serve.json_steps import DECODER, decode

COUNT = 200_000


def numbers(*, nested: bool = False) -> bytes:
    data: list[object] = [[1.5] * 4] * (COUNT // 4) if nested else [1.5] * COUNT
    return json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [COUNT], "data": data}]}).encode()


class Held:
    """Counts calls, and holds one of them until the server has answered another request."""

    def __init__(self, held: int) -> None:
        self._held = held
        self.count = 0
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.count += 1
        if self.count == self._held:
            self.begun.set()
            assert self.go_on.wait(60)


def post_while_another_is_answered(server, held: Held, body: bytes, headers: dict[str, str] | None = None) -> None:
    answers = []
    caller = threading.Thread(target=lambda: answers.append(server.post("/v2/models/any/infer", body, headers)))
    caller.start()
    assert held.begun.wait(60)
    assert server.get("/v2/health/live") == (200, {"live": True})
    assert not answers
    held.go_on.set()
    caller.join(60)
    ((status, answer),) = answers
    assert (status, answer["outputs"][0]["data"]) == (200, [1.5] * COUNT)


@pytest.mark.parametrize("part", [1, 40, 80, 100], ids=["as it is read", "later", "in the array", "in the answer"])
@pytest.mark.parametrize("nested", [False, True])
def test_others_are_answered_during_each_part_of_a_long_request(start, monkeypatch, part, nested):
    held = Held(part)
    for module in ("json_steps", "datatypes"):
        monkeypatch.setattr(f"hami_serve.{module}.pause", held)
    body = numbers(nested=nested)
    post_while_another_is_answered(start({"any": "Identity"}, door="python"), held, body)
    assert held.count > len(body) // json_steps.STEP + COUNT // 5000


def test_others_are_answered_while_a_body_is_expanded(start, monkeypatch):
    held = Held(2)

    class Expander:
        def __init__(self, **options: int) -> None:
            self._expander = decompressobj(**options)

        def decompress(self, data: bytes, limit: int) -> bytes:
            held()
            assert len(data) <= http_body.READ
            assert limit == http_body.EXPANDED
            return self._expander.decompress(data, limit)

        def __getattr__(self, name: str) -> object:
            return getattr(self._expander, name)

    decompressobj = zlib.decompressobj
    monkeypatch.setattr(http_body.zlib, "decompressobj", Expander)
    body = gzip.compress(numbers())
    server = start({"any": "Identity"}, door="python")
    post_while_another_is_answered(server, held, body, {"Content-Encoding": "gzip"})
    assert held.count >= len(numbers()) // http_body.EXPANDED


@pytest.mark.parametrize("part", [1, 60], ids=["as it is read", "in the answer"])
def test_others_are_answered_during_a_long_request_without_shapes(start, monkeypatch, part):
    held = Held(part)
    for module in ("json_steps", "datatypes"):
        monkeypatch.setattr(f"hami_serve.{module}.pause", held)
    server, answers = start({"any": "Identity"}), []
    given = {"x": [1.5] * COUNT, "id": "7"}
    caller = threading.Thread(target=lambda: answers.append(server.post("/v2/models/any/generate", given)))
    caller.start()
    assert held.begun.wait(60)
    assert server.get("/v2/health/live") == (200, {"live": True})
    held.go_on.set()
    caller.join(60)
    expected = {"model_name": "any", "model_version": "1", "id": "7", "result": [1.5] * COUNT}
    assert answers == [(200, expected)]


@hami.register
class TestManyTexts(hami.Backend):
    """Returns a long list."""

    def forward(self, batch):
        for item in batch:
            item["result"] = ["a"] * 5000


LONG_TEXT = "a" * 100_000
RANKED = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [COUNT // 10], "data": [1.5] * (COUNT // 10)}],
    "outputs": [{"name": "result", "parameters": {"classification": 1}}],
}
MODELS = {"any": "Identity", "texts": "TestManyTexts"}
ONE_TEXT = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": [LONG_TEXT]}]}


@pytest.mark.parametrize(
    ("step", "path", "given"),
    [
        ("inference.classified", "/v2/models/any/infer", RANKED),
        ("inference.outputs_of", "/v2/models/texts/infer", ONE_TEXT),
        ("inference.outputs_of", "/v2/models/texts/generate_stream", {"x": "a"}),
        ("http_app.render_answer", "/v2/models/any/infer", ONE_TEXT),
        ("http_generate.render_generated", "/v2/models/any/generate", {"x": LONG_TEXT}),
        ("http_generate.render_generated", "/v2/models/any/generate_stream", {"x": LONG_TEXT}),
        ("http_app.parse_json", "/v2/repository/index", {"ready": True, "other": LONG_TEXT}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_others_are_answered_during_a_long_step(start, monkeypatch, step, path, given):
    """Of ranking classes, and of texts that are few but long."""
    held, function = Held(1), pkgutil.resolve_name(f"hami_serve.{step}")
    server = start(MODELS, door="python")  # the native door answers one text itself

    def held_step(*given: object) -> object:
        held()
        return function(*given)

    monkeypatch.setattr(f"hami_serve.{step}", held_step)
    caller = threading.Thread(target=lambda: server.post(path, given))
    caller.start()
    assert held.begun.wait(60)
    assert server.get("/v2/health/live") == (200, {"live": True})
    held.go_on.set()
    caller.join(60)


@pytest.mark.parametrize(
    ("step", "method"),
    [
        *(("merge", each) for each in ("ModelInfer", "ModelStreamInfer")),
        *(("bytes_of_array", each) for each in ("ModelInfer", "ModelStreamInfer")),
        ("parse_request", "ModelInfer"),
    ],
)
def test_others_are_answered_while_a_long_request_of_grpc_is_converted(monkeypatch, step, method):
    grpc = pytest.importorskip("grpc")
    pytest.importorskip("grpc_health", reason="needs hami-serve[grpc]")
    from conftest import RunningGrpc

    from hami_serve import grpc_messages, grpc_tensors

    held, convert = Held(1), getattr(grpc_tensors, step)

    def held_conversion(*given: object) -> object:
        held()
        return convert(*given)

    server = RunningGrpc({"any": "Identity"})
    data = b"\x01\0\0\0a" * COUNT
    shape = {"name": "x", "datatype": "BYTES", "shape": [COUNT]}
    request = grpc_tensors.Request(model_name="any", inputs=[shape], raw_input_contents=[data])
    if step == "merge":
        typed = {**shape, "contents": {"bytes_contents": [b"a"] * COUNT}}
        request = grpc_tensors.Request(model_name="any", inputs=[typed])
    answers = []
    try:
        with grpc.insecure_channel(server.url) as channel:
            kind = channel.unary_unary if method == "ModelInfer" else channel.stream_stream
            infer = kind(f"/inference.GRPCInferenceService/{method}")
            live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
            message = request.SerializeToString()
            caller = threading.Thread(
                target=lambda: (
                    answers.append(infer(message, timeout=60))
                    if method == "ModelInfer"
                    else answers.extend(infer(iter([message]), timeout=60))
                )
            )
            monkeypatch.setattr(grpc_tensors, step, held_conversion)
            caller.start()
            assert held.begun.wait(60)
            live(b"", timeout=60)
            held.go_on.set()
            caller.join(60)
    finally:
        held.go_on.set()
        server.close()
    (answer,) = answers
    if method == "ModelStreamInfer":
        found = grpc_messages.message("ModelStreamInferResponse").FromString(answer).infer_response
    else:
        found = grpc_tensors.Response.FromString(answer)
    if step == "merge":
        assert found.outputs[0].contents.bytes_contents == [b"a"] * COUNT
    else:
        assert found.raw_output_contents[0] == data


def some_request(source: random.Random) -> bytes:
    from hami_serve.grpc_tensors import Request

    number = lambda: source.choice([0, 1, 127, 128, -1, 2**31 - 1])  # noqa: E731
    text = lambda: "é" * source.choice([0, 1, 63, 64, 200])  # noqa: E731
    many = lambda make: [make() for _ in range(source.choice([0, 0, 1, 30]))]  # noqa: E731
    tensors = [
        {
            "name": text(),
            "shape": many(number),
            "parameters": {text(): {"string_param": text()}},
            "contents": {
                "bool_contents": many(lambda: True),
                "int_contents": many(number),
                "uint64_contents": many(lambda: 2**64 - 1),
                "fp32_contents": many(lambda: 1.5),
                "fp64_contents": many(lambda: 1.5),
                "bytes_contents": many(lambda: text().encode()),
            },
        }
        for _ in range(source.randrange(4))
    ]
    outputs = [{"name": text()} for _ in range(source.randrange(3))]
    return Request(id=text(), inputs=tensors, outputs=outputs, parameters={text(): {}}).SerializeToString()


def test_requests_of_grpc_in_steps_are_the_same_as_at_once(monkeypatch):
    pytest.importorskip("grpc")
    from google.protobuf.message import DecodeError

    from hami_serve import grpc_steps
    from hami_serve.grpc_tensors import Request

    monkeypatch.setattr(grpc_steps, "STEP", 32)
    source = random.Random(1)

    def read(data: bytes) -> object:
        message = Request()
        try:
            grpc_steps.merge(message, memoryview(data))
        except DecodeError:
            return None
        return message

    def at_once(data: bytes) -> object:
        try:
            return Request.FromString(data)
        except DecodeError:
            return None

    for _ in range(40):
        data = some_request(source)
        place = source.randrange(len(data))
        damaged = data[:place] + source.randbytes(1) + data[place + 1 :]
        assert str(read(data)) == str(at_once(data))
        found = read(damaged)
        assert found is None or str(found) == str(at_once(damaged)), damaged


def test_elements_of_grpc_that_are_fields_of_their_own_are_read(monkeypatch):
    pytest.importorskip("grpc")
    from hami_serve.grpc_steps import encoded
    from hami_serve.grpc_tensors import Received, Request

    contents = b"\x10\x07" * COUNT + b"\x35\0\0\xc0\x3f" * COUNT + b"\x42\x81\x01" + b"a" * 129
    tensor = encoded(42, len(contents)) + contents
    received = Received(Request(model_name="any").SerializeToString() + encoded(42, len(tensor)) + tensor, None)
    assert received.message.model_name == "any"
    assert not received.message.inputs
    received.read()
    (found,) = received.message.inputs
    assert found.contents.int_contents == [7] * COUNT
    assert found.contents.fp32_contents == [1.5] * COUNT
    assert found.contents.bytes_contents == [b"a" * 129]


@pytest.mark.parametrize("raw", [False, True])
def test_answers_of_grpc_in_steps_are_the_same_as_at_once(monkeypatch, raw):
    pytest.importorskip("grpc")
    from hami_serve import grpc_tensors
    from hami_serve.grpc_messages import message
    from hami_serve.inference import Output

    model = SimpleNamespace(handle=SimpleNamespace(component="any", version="1"))
    outputs = [
        Output("numbers", "INT32", np.arange(-150, 150, dtype=np.int32).reshape(30, 10)),
        Output("one", "FP64", np.float64([[0.5]])),
        Output("texts", "BYTES", np.array(["é", b"\xff"] * 60, object)),
        Output("flags", "BOOL", np.zeros(200, bool)),
    ]
    once = grpc_tensors.Response.FromString(grpc_tensors.joined(grpc_tensors.render_answer(model, "7", outputs, raw)))
    pauses = []
    monkeypatch.setattr(grpc_tensors, "pause", lambda: pauses.append(None))
    monkeypatch.setattr(grpc_tensors, "STEP", 32)
    monkeypatch.setattr(grpc_tensors, "MANY", 32)
    answer = grpc_tensors.render_answer(model, "7", outputs, raw)
    assert grpc_tensors.Response.FromString(grpc_tensors.joined(answer)) == once
    streamed = message("ModelStreamInferResponse").FromString(grpc_tensors.joined_of_stream(answer))
    assert streamed.infer_response == once
    assert [len(output.shape) for output in once.outputs] == [2, 2, 1, 1]
    assert raw or len(pauses) == 10 + 1 + 4 + 7  # one message of each part, which has at most 32 elements


FEW = "a message has more than 8192 fields; send the tensors as raw contents"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"id": "i" * 100_000}, "the model, its version and the id have 100004 bytes together; give at most 65536"),
        ({"inputs": [{"name": "x" * 100_000}]}, "the name of a tensor has 100000 bytes; give at most 65536"),
    ],
)
def test_a_very_long_name_of_grpc_is_rejected_before_it_becomes_text(given, message):
    """A text of 60 MB, read a few times, kept the loop of the server for a second."""
    pytest.importorskip("grpc")
    from hami_serve.errors import BadRequest
    from hami_serve.grpc_tensors import Received, Request

    with pytest.raises(BadRequest, match=message):
        Received(Request(**given).SerializeToString(), None).read()


@pytest.mark.parametrize(
    "data",
    [b"\x2a\0" * 100_000, b"\x22\0" * 100_000, b"\x3a\0" * 100_000, b"\x2a\xc0\x9a\x0c" + b"\x22\0" * 100_000],
    ids=["inputs", "parameters", "raw contents", "parameters of an input"],
)
def test_a_request_of_grpc_with_very_many_fields_is_rejected_before_it_is_read(data):
    """Protobuf makes 67 bytes of the two bytes of an empty input."""
    grpc = pytest.importorskip("grpc")
    pytest.importorskip("grpc_health", reason="needs hami-serve[grpc]")
    from conftest import RunningGrpc

    server = RunningGrpc({"any": "Identity"})
    try:
        with grpc.insecure_channel(server.url) as channel:
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            call = infer.future(data, timeout=60)
            assert (call.code(), call.details()) == (grpc.StatusCode.INVALID_ARGUMENT, FEW)
            load = channel.unary_unary("/inference.GRPCInferenceService/RepositoryModelLoad")
            call = load.future(data, timeout=60)
            assert call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert call.details() == f"a RepositoryModelLoadRequest has at most 65536 bytes, got {len(data)}"
    finally:
        server.close()


def test_a_long_text_is_read_in_steps(monkeypatch):
    pauses = []
    monkeypatch.setattr(json_steps, "pause", lambda: pauses.append(1))
    text = "\x01\U0001f600" * 50_000
    assert decode(json.dumps({"x": text})) == {"x": text}
    assert len(pauses) > 50_000 * 18 // json_steps.STEP


def some_value(source: random.Random, depth: int = 0) -> object:
    kind = source.random()
    if depth < 4 and kind < 0.3:
        return [some_value(source, depth + 1) for _ in range(source.randrange(8))]
    if depth < 4 and kind < 0.5:
        keys = (source.choice('ab"]}{[\\é') * source.randrange(3) + str(index) for index in range(source.randrange(6)))
        return {key: some_value(source, depth + 1) for key in keys}
    values = [1, 2.5, -3e10, None, True, "x" * 50, '"]},[{', [1] * 20, list(range(40)), [], {}, ""]
    values += ['é"\\\\u\x01' * 20, "\ud83d\U0001f600" * 9]
    return source.choice(values)


def outcome(read, text: str) -> str:
    try:
        return repr(read(text))
    except ValueError as error:
        return str(error)


def test_json_in_steps_is_the_same_as_at_once(monkeypatch):
    monkeypatch.setattr(json_steps, "STEP", 32)
    source = random.Random(1)
    for _ in range(300):
        text = json.dumps(some_value(source), indent=source.choice([None, 1]), ensure_ascii=source.random() < 0.5)
        place = source.randrange(len(text))
        damaged = text[:place] + source.choice(',[]{}":1 \\xtn') + text[place + source.randrange(2) :]
        for each in (text, damaged):
            assert outcome(decode, each) == outcome(DECODER.decode, each), each


def test_long_texts_are_written_in_steps(monkeypatch):
    pauses = []
    monkeypatch.setattr(json_steps, "STEP", 8)
    monkeypatch.setattr(json_steps, "pause", lambda: pauses.append(1))
    texts = ["", "short", 'é\U0001f600"\\\n\x01' * 20]
    assert json.loads(json_steps.encode_steps([texts, [1.5, None], []])) == [*texts, 1.5, None]
    assert len(pauses) > 20 * 6 // 8


def test_any_value_is_written_in_steps_as_at_once(monkeypatch):
    value = {
        "rows": np.arange(40, dtype=np.float32).reshape(4, 10),
        "boxes": [{"box": (1.5, 2.0), "name": f"cat {i}", 3: None} for i in range(9)],
        "raw": [bytes(range(100)), memoryview(b"ab")],
        "text": 'ein "größeres"\ud800 \n' * 20,
        "numbers": [*range(20), float("nan"), {4, 5}, Path("a"), np.int64(3)],
        "empty": [[], {}, np.zeros((0, 3)), ""],
    }
    once = json_steps.written(hami.to_json(value))
    pauses = []
    monkeypatch.setattr(json_steps, "pause", lambda: pauses.append(None))
    for many in (1, 3, 8):
        monkeypatch.setattr(json_steps, "MANY", many)
        monkeypatch.setattr(json_steps, "BASE64_STEP", 3)
        assert json_steps.write(value) == once
    assert len(pauses) > 100
    itself: list = []
    itself.append(itself)
    with pytest.raises(RecursionError):
        json_steps.write(itself)


def test_long_json_that_is_nested_too_deep_is_rejected(start):
    server = start({"any": "Identity"})
    status, answer = server.post("/v2/models/any/infer", b"[" * 100_000)
    assert (status, answer) == (400, {"error": "the request is nested too deep"})
