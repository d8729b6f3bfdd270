"""The calls of Triton's HTTP examples, made with Triton's own client."""

from __future__ import annotations

import numpy as np
import pytest

triton = pytest.importorskip("tritonclient.http", reason="needs tritonclient[http]", exc_type=ImportError)
InferInput, InferRequestedOutput = triton.InferInput, triton.InferRequestedOutput


@pytest.fixture
def client(server):
    made = triton.InferenceServerClient(server.url, concurrency=4)
    yield made
    made.close()


def inputs(datatype: str, first: np.ndarray, second: np.ndarray, *, binary: bool = True) -> list:
    made = [InferInput("INPUT0", list(first.shape), datatype), InferInput("INPUT1", list(second.shape), datatype)]
    for each, array in zip(made, (first, second), strict=True):
        each.set_data_from_numpy(array, binary_data=binary)
    return made


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(
    ("model", "datatype", "dtype"), [("simple", "INT32", np.int32), ("simple_int8", "INT8", np.int8)]
)
def test_simple_infer(client, model, datatype, dtype, binary):
    first, second = np.arange(16, dtype=dtype).reshape(1, 16), np.full((1, 16), -1, dtype)
    outputs = [InferRequestedOutput(name, binary_data=binary) for name in ("OUTPUT0", "OUTPUT1")]
    result = client.infer(model, inputs(datatype, first, second, binary=binary), outputs=outputs, request_id="1")
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + second)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), first - second)
    assert result.get_response()["id"] == "1"


def test_simple_async_infer(client):
    data = np.arange(16, dtype=np.int32).reshape(1, 16)
    handles = [client.async_infer("simple", inputs("INT32", data, data)) for _ in range(16)]
    for handle in handles:
        np.testing.assert_array_equal(handle.get_result().as_numpy("OUTPUT0"), 2 * data)


@pytest.mark.parametrize("binary", [True, False])
def test_simple_string_infer(client, binary):
    text = np.array([str(number).encode() for number in range(16)], object).reshape(1, 16)
    ones = np.full((1, 16), b"1", object)
    outputs = [InferRequestedOutput(name, binary_data=binary) for name in ("OUTPUT0", "OUTPUT1")]
    result = client.infer("simple_string", inputs("BYTES", text, ones, binary=binary), outputs=outputs)
    sums = [int(each) for each in result.as_numpy("OUTPUT0").reshape(-1)]
    assert sums == [number + 1 for number in range(16)]


def test_identity_of_text_that_is_not_utf8(client):
    text = np.array([[b"\xff\0x", b""]], object)
    given = InferInput("INPUT0", [1, 2], "BYTES")
    given.set_data_from_numpy(text)
    np.testing.assert_array_equal(client.infer("simple_identity", [given]).as_numpy("OUTPUT0"), text)


def test_bf16(client):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    given = InferInput("x", [3], "BF16")
    given.set_data_from_numpy(np.array([1.0, -2.5, 0.0], bfloat16))
    result = client.infer("bf16", [given], outputs=[InferRequestedOutput("y", binary_data=True)])
    np.testing.assert_array_equal(result.as_numpy("y").astype(np.float32), np.array([1.0, -2.5, 0.0], np.float32))


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests(client, algorithm):
    data = np.arange(16, dtype=np.int32).reshape(1, 16)
    result = client.infer("simple", inputs("INT32", data, data), request_compression_algorithm=algorithm)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), 0 * data)


def test_health_and_metadata(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("simple")
    assert client.is_model_ready("simple", "1")
    assert not client.is_model_ready("absent")
    assert client.get_server_metadata()["name"] == "hami-serve"
    assert [each["name"] for each in client.get_model_metadata("simple")["inputs"]] == ["INPUT0", "INPUT1"]
    assert client.get_model_config("simple")["max_batch_size"] == 0


def test_errors_have_their_status_and_text(client):
    data = np.zeros((1, 16), np.int32)
    with pytest.raises(triton.InferenceServerException, match='there is no model "wrong"') as error:
        client.infer("wrong", inputs("INT32", data, data))
    assert error.value.status() == "404"
    with pytest.raises(triton.InferenceServerException, match='"simple" needs the input "INPUT1"'):
        client.infer("simple", inputs("INT32", data, data)[:1])


def test_statistics(client):
    data = np.zeros((1, 16), np.int32)
    before = client.get_inference_statistics("simple")["model_stats"][0]["inference_stats"]["success"]["count"]
    client.infer("simple", inputs("INT32", data, data))
    after = client.get_inference_statistics("simple", "1")["model_stats"][0]["inference_stats"]["success"]["count"]
    assert after == before + 1


def test_model_control(start):
    server = start({"simple": "Identity"}, allow_control=True)
    with triton.InferenceServerClient(server.url) as client:
        client.unload_model("simple")
        assert not client.is_model_ready("simple")
        assert client.get_model_repository_index()[0]["state"] == "UNAVAILABLE"
        client.load_model("simple")
        assert client.is_model_ready("simple")
        with pytest.raises(triton.InferenceServerException, match="there is no model"):
            client.load_model("wrong")
