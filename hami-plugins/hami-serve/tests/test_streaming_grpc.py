"""Answers in several parts over gRPC, with Triton's client: the calls of its examples for decoupled models."""

from __future__ import annotations

import asyncio
import queue

import numpy as np
import pytest
from conftest import FLOODS, Flood, RunningGrpc, models

triton = pytest.importorskip("tritonclient.grpc", reason="needs tritonclient[grpc]", exc_type=ImportError)
aio = pytest.importorskip("tritonclient.grpc.aio", reason="needs tritonclient[grpc]", exc_type=ImportError)
grpc = pytest.importorskip("grpc")
pytest.importorskip("grpc_health", reason="needs hami-serve[grpc]")
pytest.importorskip("grpc_reflection", reason="needs hami-serve[grpc]")

from hami_serve.grpc_messages import message  # noqa: E402

METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"


@pytest.fixture(scope="module")
def server():
    running = RunningGrpc(models())
    yield running
    running.close()


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(server.url) as made:
        yield made


def tensor(name: str, values: list, dtype: type, datatype: str) -> object:
    made = triton.InferInput(name, [len(values)], datatype)
    made.set_data_from_numpy(np.array(values, dtype))
    return made


def repeat(values: list[int]) -> list:
    """Return the inputs of the model repeat_int32."""
    return [
        tensor("IN", values, np.int32, "INT32"),
        tensor("DELAY", [0] * len(values), np.uint32, "UINT32"),
        tensor("WAIT", [0], np.uint32, "UINT32"),
    ]


def text(value: str) -> list:
    made = triton.InferInput("text_input", [1, 1], "BYTES")
    made.set_data_from_numpy(np.array([[value.encode()]], object))
    return [made]


class Answers:
    """The answers of a stream, in the order in which they come."""

    def __init__(self) -> None:
        self._queue: queue.Queue[tuple[object, object]] = queue.Queue()

    def __call__(self, result: object, error: object) -> None:
        self._queue.put((result, error))

    def next(self):
        result, error = self._queue.get(timeout=60)
        if error is not None:
            raise error
        return result

    def parts(self):
        """Return the answers to one request up to its final one."""
        found = [self.next()]
        while not is_final(found[-1]):
            found.append(self.next())
        return found


def is_final(result) -> bool:
    return result.get_response().parameters["triton_final_response"].bool_param


@pytest.fixture
def answers(client):
    made = Answers()
    client.start_stream(callback=made)
    yield made
    client.stop_stream()


def test_every_element_is_an_answer_of_its_own(client, answers):
    client.async_stream_infer("repeat_int32", repeat([4, 2, 0, 1]), request_id="r")
    found = [answers.next() for _ in range(4)]
    assert [(int(each.as_numpy("OUT")[0]), int(each.as_numpy("IDX")[0])) for each in found] == [
        (4, 0),
        (2, 1),
        (0, 2),
        (1, 3),
    ]
    assert {each.get_response().id for each in found} == {"r"}
    assert not any(map(is_final, found))


def test_an_empty_final_answer_comes_only_to_a_client_that_asks_for_it(client, answers):
    client.async_stream_infer("repeat_int32", repeat([]))
    client.async_stream_infer("repeat_int32", repeat([7]), enable_empty_final_response=True, request_id="e")
    part, final = answers.parts()
    assert part.as_numpy("OUT").tolist() == [7]
    response = final.get_response()
    assert (response.id, response.model_name, len(response.outputs)) == ("e", "repeat_int32", 0)


def test_a_result_after_the_parts_is_the_final_answer(client, answers):
    client.async_stream_infer("words", text("to be"), enable_empty_final_response=True)
    assert [each.as_numpy("text_output").tolist() for each in answers.parts()] == [[b"to"], [b"be"], [b"to be"]]


def test_a_model_without_parts_has_one_final_answer(client, answers):
    data = np.arange(16, dtype=np.int32).reshape(1, 16)
    inputs = [triton.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for each in inputs:
        each.set_data_from_numpy(data)
    client.async_stream_infer("simple", inputs)
    (only,) = answers.parts()
    np.testing.assert_array_equal(only.as_numpy("OUTPUT0"), 2 * data)


def test_a_model_without_parts_that_returns_none_has_one_final_answer_too(client, answers):
    client.async_stream_infer("nothing", text(""), request_id="n")
    (only,) = answers.parts()
    assert (only.get_response().id, only.as_numpy("result").tolist()) == ("n", [b"null"])
    client.async_stream_infer("nothing", text("ab"), enable_empty_final_response=True)
    assert [each.as_numpy("result") for each in answers.parts()] == [97, 98, None]


def test_an_error_after_a_part_does_not_end_the_stream(client, answers):
    client.async_stream_infer("words", text("one fail"))
    client.async_stream_infer("words", text("two"))
    assert answers.next().as_numpy("text_output").tolist() == [b"one"]
    with pytest.raises(triton.InferenceServerException, match="this word is an error"):
        answers.next()
    assert [each.as_numpy("text_output").tolist() for each in answers.parts()] == [[b"two"], [b"two"]]


def test_infer_of_a_model_with_parts_answers_with_its_result(client):
    assert client.infer("words", text("to be")).as_numpy("text_output").tolist() == [b"to be"]


def test_the_configuration_says_which_models_answer_in_parts(client):
    for model, decoupled in (("repeat_int32", True), ("simple", False)):
        assert client.get_model_config(model).config.model_transaction_policy.decoupled is decoupled


def test_the_asyncio_client_gets_the_same_parts(server):
    async def main() -> list[int]:
        async def requests():
            yield {"model_name": "repeat_int32", "inputs": repeat([5, 6, 7]), "enable_empty_final_response": True}

        found = []
        async with aio.InferenceServerClient(server.url) as client:
            async for result, error in client.stream_infer(requests()):
                assert error is None
                if is_final(result):
                    break
                found.append(int(result.as_numpy("OUT")[0]))
        return found

    assert asyncio.run(main()) == [5, 6, 7]


def request(model: str) -> object:
    tensor = {"name": "x", "datatype": "INT8", "shape": [1], "contents": {"int_contents": [1]}}
    return message("ModelInferRequest")(model_name=model, inputs=[tensor])


def call(channel, model: str):
    """Start a stream with one request; return the call, whose answers are not read yet."""
    method = channel.stream_stream(
        METHOD,
        request_serializer=lambda each: each.SerializeToString(),
        response_deserializer=message("ModelStreamInferResponse").FromString,
    )
    return method(iter([request(model)]), timeout=60)


def test_a_model_waits_for_a_client_that_reads_slowly_and_ends_when_it_leaves():
    FLOODS["grpc"] = flood = Flood()
    server = RunningGrpc({"flood": {"backend": "TestFlood", "flood": "grpc"}, "echo": "Identity"})
    try:
        with grpc.insecure_channel(server.url) as channel, grpc.insecure_channel(server.url) as other:
            answers = call(channel, "flood")
            assert len(next(answers).infer_response.outputs) == 1
            while True:
                before = flood.parts
                for _ in range(20):
                    assert next(call(other, "echo")).infer_response.model_name == "echo"
                if flood.parts == before:
                    break
            assert flood.parts < 4096
            answers.cancel()
            assert flood.ended.wait(60)
    finally:
        server.close()


@pytest.fixture
def serve():
    """serve(models) starts a server, which ends with the test."""
    started = []

    def begin(source):
        started.append(RunningGrpc(source))
        return started[-1]

    yield begin
    for each in started:
        each.close()


def test_requests_of_decoupled_models_of_one_stream_run_at_once(serve):
    server = serve({"meeting": {"source": {"backend": "TestMeeting", "instance_num": 2}, "decoupled": True}})
    answers = Answers()
    with triton.InferenceServerClient(server.url) as client:
        client.start_stream(callback=answers)
        for number in range(4):
            client.async_stream_infer("meeting", [tensor("x", [number], np.int32, "INT32")], request_id=str(number))
        client.stop_stream()  # waits for the answers
    found = [answers.next() for _ in range(4)]
    assert {(each.get_response().id, int(each.as_numpy("result")[0])) for each in found} == {
        (str(number), number) for number in range(4)
    }


def test_a_stream_that_is_cancelled_cancels_all_its_requests(serve, gate):
    gates = [gate("first"), gate("second")]
    server = serve({name: {"source": f"TestGate(gate={name})", "decoupled": True} for name in ("first", "second")})
    with triton.InferenceServerClient(server.url) as client:
        client.start_stream(callback=Answers())
        for name in ("first", "second"):
            client.async_stream_infer(name, [tensor("x", [1], np.int32, "INT32")])
        for each in gates:
            assert each.begun.acquire(timeout=60)
        client.stop_stream(cancel_requests=True)
    for each in gates:
        assert each.cancelled.wait(60)


def test_more_requests_than_run_at_once_are_all_answered(serve, monkeypatch):
    monkeypatch.setattr("hami_serve.grpc_server.MAX_RUNNING", 2)
    server = serve({"any": {"source": "Identity", "decoupled": True}})
    answers = Answers()
    with triton.InferenceServerClient(server.url) as client:
        client.start_stream(callback=answers)
        for number in range(32):
            client.async_stream_infer("any", [tensor("x", [number], np.int32, "INT32")])
        client.async_stream_infer("absent", [tensor("x", [1], np.int32, "INT32")])
        client.stop_stream()
    found, errors = [], 0
    for _ in range(33):
        try:
            found.append(int(answers.next().as_numpy("result")[0]))
        except triton.InferenceServerException as error:
            errors += "there is no model" in str(error)
    assert (sorted(found), errors) == (list(range(32)), 1)
