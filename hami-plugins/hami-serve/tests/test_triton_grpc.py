"""The calls of Triton's gRPC examples, made with Triton's own client; health, reflection and malformed messages."""

from __future__ import annotations

import queue

import numpy as np
import pytest
from conftest import RunningGrpc, models

triton = pytest.importorskip("tritonclient.grpc", reason="needs tritonclient[grpc]", exc_type=ImportError)
grpc = pytest.importorskip("grpc")
pytest.importorskip("grpc_health", reason="needs hami-serve[grpc]")
pytest.importorskip("grpc_reflection", reason="needs hami-serve[grpc]")

from tritonclient.utils import InferenceServerException  # noqa: E402

from hami_serve.grpc_messages import message  # noqa: E402


@pytest.fixture(scope="module")
def server():
    running = RunningGrpc(models() | {"stateful": "TestAccumulate"})
    yield running
    running.close()


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(server.url) as made:
        yield made


def inputs(datatype: str, first: np.ndarray, second: np.ndarray) -> list:
    made = [triton.InferInput(name, list(first.shape), datatype) for name in ("INPUT0", "INPUT1")]
    for each, array in zip(made, (first, second), strict=True):
        each.set_data_from_numpy(array)
    return made


@pytest.mark.parametrize(
    ("model", "datatype", "dtype"), [("simple", "INT32", np.int32), ("simple_int8", "INT8", np.int8)]
)
def test_simple_infer(client, model, datatype, dtype):
    first, second = np.arange(16, dtype=dtype).reshape(1, 16), np.full((1, 16), -1, dtype)
    result = client.infer(model, inputs(datatype, first, second), request_id="r1")
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + second)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), first - second)
    assert result.get_response().id == "r1"


def test_simple_string_and_identity(client):
    text = np.array([[str(number).encode() for number in range(16)]], object)
    result = client.infer("simple_string", inputs("BYTES", text, text))
    assert [int(each) for each in result.as_numpy("OUTPUT0")[0]] == [2 * number for number in range(16)]
    given = triton.InferInput("INPUT0", [1, 2], "BYTES")
    given.set_data_from_numpy(np.array([[b"\xff\0", b""]], object))
    assert client.infer("simple_identity", [given]).as_numpy("OUTPUT0").tolist() == [[b"\xff\0", b""]]


def test_async_infer(client):
    data = np.arange(16, dtype=np.int32).reshape(1, 16)
    answers: queue.Queue[tuple] = queue.Queue()
    for _ in range(8):
        client.async_infer(
            "simple", inputs("INT32", data, data), callback=lambda result, error: answers.put((result, error))
        )
    for _ in range(8):
        result, error = answers.get(timeout=30)
        assert error is None
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), 2 * data)


def test_a_stream_answers_in_order_and_survives_a_request_that_fails(client):
    answers: queue.Queue[tuple] = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    for number in (1, 2, 3):
        given = triton.InferInput("INPUT", [1], "INT32")
        given.set_data_from_numpy(np.array([number], np.int32))
        client.async_stream_infer(
            "stateful", [given], sequence_id=7, sequence_start=number == 1, sequence_end=number == 3
        )
    client.async_stream_infer("absent", [given])
    sums = [answers.get(timeout=30)[0].as_numpy("result").tolist() for _ in range(3)]
    assert sums == [[1], [3], [6]]
    result, error = answers.get(timeout=30)
    assert result is None
    assert 'there is no model "absent"' in str(error)
    client.stop_stream()


def test_health_metadata_index_and_statistics(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("simple")
    assert not client.is_model_ready("absent")
    assert client.get_server_metadata().name == "hami-serve"
    assert client.get_model_metadata("simple").outputs[1].name == "OUTPUT1"
    assert client.get_model_config("simple").config.input[0].data_type == 8
    assert "simple" in {model.name for model in client.get_model_repository_index().models}
    data = np.zeros((1, 16), np.int32)
    client.infer("simple", inputs("INT32", data, data))
    assert client.get_inference_statistics("simple").model_stats[0].inference_stats.success.count >= 1


def test_clients_cannot_load_and_unload_models_by_default(client):
    for call in (client.load_model, client.unload_model):
        with pytest.raises(triton.InferenceServerException, match="--allow-control") as error:
            call("simple")
        assert error.value.status() == "StatusCode.PERMISSION_DENIED"
    assert client.is_model_ready("simple")


def test_model_control():
    server = RunningGrpc({"simple": "Identity"}, allow_control=True)
    try:
        with triton.InferenceServerClient(server.url) as client:
            client.unload_model("simple")
            assert not client.is_model_ready("simple")
            client.load_model("simple")
            assert client.is_model_ready("simple")
    finally:
        server.close()


@pytest.mark.parametrize(
    ("model", "code", "text"),
    [
        ("absent", "NOT_FOUND", 'there is no model "absent"'),
        ("raises", "INTERNAL", "ZeroDivisionError: in the backend"),
        ("picture", "INTERNAL", "ValueError: not a picture"),
    ],
)
def test_errors_have_their_code_and_text(client, model, code, text):
    data = np.zeros((1, 16), np.int32)
    with pytest.raises(InferenceServerException, match=text) as error:
        client.infer(model, inputs("INT32", data, data)[:1])
    assert error.value.status() == f"StatusCode.{code}"


def call(server: RunningGrpc, request: object) -> object:
    """Send a message of our own classes."""
    with grpc.insecure_channel(server.url) as channel:
        method = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=lambda each: each.SerializeToString(),
            response_deserializer=message("ModelInferResponse").FromString,
        )
        return method(request, timeout=30)


def infer_request(*tensors: dict[str, object], **others: object) -> object:
    return message("ModelInferRequest")(model_name="any", inputs=list(tensors), **others)


X = {"name": "x", "datatype": "INT32", "shape": [2]}


def test_typed_contents_are_answered_with_typed_contents(server):
    answer = call(server, infer_request({**X, "contents": {"int_contents": [1, -2]}}))
    assert list(answer.outputs[0].contents.int_contents) == [1, -2]
    assert not answer.raw_output_contents


def test_large_raw_contents_arrive_and_return_unchanged(server):
    sizes = (100_000, 0, 50_001)
    tensors = [np.arange(size, dtype=np.uint8) for size in sizes]
    entries = [{"name": name, "datatype": "UINT8", "shape": [size]} for name, size in zip("abc", sizes, strict=True)]
    answer = call(server, infer_request(*entries, raw_input_contents=[each.tobytes() for each in tensors], id="large"))
    assert answer.id == "large"
    found = dict(zip((each.name for each in answer.outputs), answer.raw_output_contents, strict=True))
    assert found == {name: each.tobytes() for name, each in zip("abc", tensors, strict=True)}


@pytest.mark.parametrize(("size", "cut"), [(140_000, 1), (140_000, 70_000), (140_000, 139_990), (10, 1)])
def test_a_message_that_is_cut_is_rejected(server, size, cut):
    request = infer_request({**X, "datatype": "UINT8", "shape": [size]}, raw_input_contents=[bytes(size)])
    data = request.SerializeToString()
    with grpc.insecure_channel(server.url) as channel:
        method = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError) as error:
            method(data[: len(data) - cut], timeout=30)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.value.details() == "the message is not a ModelInferRequest, or it is not complete"


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (infer_request(), "the request has no inputs"),
        (infer_request({**X, "contents": {"int_contents": [1]}}), "has 1 elements; its shape"),
        (infer_request({**X, "datatype": "FP8"}), "has the datatype FP8"),
        (infer_request({**X, "datatype": "FP16"}), "is sent as raw contents"),
        (infer_request({**X, "shape": [-1]}), "has the size -1"),
        (infer_request({**X, "shape": [2**30]}, raw_input_contents=[b"\0" * 8]), "has 8 bytes; INT32 of shape"),
        (infer_request(X, raw_input_contents=[b"\0" * 7]), "has 7 bytes; INT32"),
        (infer_request(X, X, raw_input_contents=[b"", b""]), "has 0 bytes"),
        (infer_request(X, raw_input_contents=[b"", b""]), "raw_input_contents has 2 entries for 1 inputs"),
        (infer_request(*[{**X, "name": str(n)} for n in range(1025)]), "at most 1024 inputs, got 1025"),
        (infer_request(X, outputs=[{"name": "y"}] * 1025), "at most 1024 outputs, got 1025"),
        (infer_request(X, parameters={str(n): {"bool_param": True} for n in range(1025)}), "1024 parameters, got 1025"),
        (
            infer_request({**X, "contents": {"int_contents": [1, 2]}}, raw_input_contents=[b"\0" * 8]),
            'input "x" has int_contents and raw contents',
        ),
        (
            infer_request({**X, "contents": {"fp32_contents": [1, 2]}}),
            'input "x" is INT32, whose elements are int_contents, and has fp32_contents',
        ),
        (
            infer_request({**X, "contents": {"int_contents": [1, 2], "uint_contents": [1]}}),
            'input "x" is INT32, whose elements are int_contents, and has uint_contents',
        ),
        (infer_request({**X, "datatype": "BYTES", "contents": {"bytes_contents": [b"a"]}}), "has 1 elements"),
    ],
    ids=lambda each: each[:30] if isinstance(each, str) else "",
)
def test_bad_messages_are_answered_with_a_sentence(server, request_, text):
    with pytest.raises(grpc.RpcError) as error:
        call(server, request_)
    assert (error.value.code(), text in error.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, True), error.value


DAMAGED = b"\n\xff"  # a field that is longer than the message


@pytest.mark.parametrize("method", ["ModelInfer", "ModelMetadata", "ModelConfig", "ModelStatistics", "RepositoryIndex"])
def test_a_damaged_message_is_an_invalid_argument(server, method):
    with grpc.insecure_channel(server.url) as channel, pytest.raises(grpc.RpcError) as error:
        channel.unary_unary(f"/inference.GRPCInferenceService/{method}")(DAMAGED, timeout=30)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.value.details() == f"the message is not a {method}Request, or it is not complete"


def test_a_damaged_message_does_not_end_its_stream(server):
    good = infer_request({**X, "contents": {"int_contents": [1, 2]}})
    with grpc.insecure_channel(server.url) as channel:
        call = channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            response_deserializer=message("ModelStreamInferResponse").FromString,
        )
        first, second = call(iter([DAMAGED, good.SerializeToString()]), timeout=30)
    assert first.error_message == "the message is not a ModelInferRequest, or it is not complete"
    assert (second.error_message, len(second.infer_response.outputs)) == ("", 1)


def test_a_message_over_the_limit_is_rejected(server):
    with pytest.raises(grpc.RpcError) as error:
        call(
            server, infer_request({**X, "datatype": "INT8", "shape": [2 << 20]}, raw_input_contents=[b"\0" * (2 << 20)])
        )
    assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    "method",
    [
        "inference.GRPCInferenceService/ModelInfer",
        "inference.GRPCInferenceService/ServerLive",
        "grpc.health.v1.Health/Check",
    ],
)
def test_a_call_that_ends_without_its_message_is_an_invalid_argument(server, method):
    with grpc.insecure_channel(server.url) as channel:
        call_without_message = channel.stream_stream(f"/{method}")
        with pytest.raises(grpc.RpcError) as error:
            list(call_without_message(iter([]), timeout=30))
    assert (error.value.code(), error.value.details()) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "the call has no message; send one before it is closed",
    )


def test_the_deadline_of_the_client_cancels_the_request(gate):
    slow = gate("grpc")
    server = RunningGrpc({"any": {"backend": "TestGate", "gate": "grpc"}})
    try:
        with grpc.insecure_channel(server.url) as channel:
            method = channel.unary_unary(
                "/inference.GRPCInferenceService/ModelInfer",
                request_serializer=lambda each: each.SerializeToString(),
                response_deserializer=message("ModelInferResponse").FromString,
            )
            future = method.future(infer_request({**X, "contents": {"int_contents": [1, 2]}}))
            assert slow.begun.acquire(timeout=30)
            future.cancel()
            assert slow.cancelled.wait(30)
            with pytest.raises(grpc.RpcError) as error:
                method(infer_request({**X, "contents": {"int_contents": [1, 2]}}), timeout=0.05)
            assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    finally:
        server.close()


def test_health_and_reflection(server):
    from google.protobuf.descriptor_pool import DescriptorPool
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

    with grpc.insecure_channel(server.url) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service="inference.GRPCInferenceService"), timeout=30
        )
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        database = ProtoReflectionDescriptorDatabase(channel)
        assert {"inference.GRPCInferenceService", "grpc.health.v1.Health"} <= set(database.get_services())
        service = DescriptorPool(database).FindServiceByName("inference.GRPCInferenceService")
        assert service.methods_by_name["ModelInfer"].input_type.full_name == "inference.ModelInferRequest"


def test_the_descriptor_belongs_to_the_proto_file(tmp_path):
    protoc = pytest.importorskip("grpc_tools.protoc", reason="needs grpcio-tools")
    from importlib.resources import files

    folder = files("hami_serve")
    made = tmp_path / "made.binpb"
    assert protoc.main(["protoc", f"-I{folder}", f"--descriptor_set_out={made}", "open_inference.proto"]) == 0
    assert made.read_bytes() == (folder / "open_inference.binpb").read_bytes()
