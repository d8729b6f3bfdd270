"""The calls of the examples of Triton's client that other tests do not make: aio, sequences, classifier, ensemble.

Without --shared-memory, clients that ask for it get an error that says so.
"""

from __future__ import annotations

import asyncio
import queue

import hami
import numpy as np
import pytest
from conftest import Running, RunningGrpc, models

from hami_serve import AllRounder

reason = "needs tritonclient[http,grpc] and hami-serve[grpc]"
http = pytest.importorskip("tritonclient.http", reason=reason, exc_type=ImportError)
grpc = pytest.importorskip("tritonclient.grpc", reason=reason, exc_type=ImportError)
http_aio = pytest.importorskip("tritonclient.http.aio", reason=reason, exc_type=ImportError)
grpc_aio = pytest.importorskip("tritonclient.grpc.aio", reason=reason, exc_type=ImportError)
pytest.importorskip("grpc_health", reason=reason)
pytest.importorskip("grpc_reflection", reason=reason)

CLIENTS = {"http": http, "grpc": grpc}
AIO = {"http": http_aio, "grpc": grpc_aio}
NUMBERS = np.arange(16, dtype=np.int32).reshape(1, 16)
LABELS = ("dark", "grey", "bright")


@hami.register
class TestBrightness(hami.Backend):
    """Scores of a picture in the format PPM or of an array: an image classifier without weights."""

    def forward(self, batch):
        for item in batch:
            data = item["data"]
            pixels = np.frombuffer(data[data.rindex(b"255\n") + 4 :], np.uint8) if isinstance(data, bytes) else data
            distances = np.abs(np.array([0.0, 127.5, 255.0]) - float(pixels.mean()))
            item["scores"] = (1 / (1 + distances)).astype(np.float32)[None]
            item["result"] = LABELS[int(distances.argmin())]


@hami.register
class TestDecode(hami.Backend):
    """The first step of the ensemble: bytes to pixels."""

    def forward(self, batch):
        for item in batch:
            data = item["data"]
            item["result"] = np.frombuffer(data[data.rindex(b"255\n") + 4 :], np.uint8)


def picture(value: int) -> bytes:
    return b"P6\n2 2\n255\n" + bytes([value]) * 12


@pytest.fixture(scope="module")
def urls():
    """The addresses of an HTTP and of a gRPC server of the same models."""
    image = {"name": "INPUT", "datatype": "BYTES", "shape": [1]}
    examples = {
        "simple_sequence": {
            "source": "TestAccumulate",
            "inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [-1]}],
            "outputs": [{"name": "OUTPUT", "datatype": "INT32", "shape": [-1]}],
        },
        "classifier": {
            "source": "TestBrightness",
            "inputs": [image],
            "outputs": [
                {"name": "scores", "datatype": "FP32", "shape": [1, 3]},
                {"name": "result", "datatype": "BYTES", "shape": [1]},
            ],
        },
        "ensemble": {"source": "S[TestDecode, TestBrightness]", "inputs": [image]},
    }
    with AllRounder(models() | examples) as rounder:
        running = {"http": Running(rounder), "grpc": RunningGrpc(rounder)}
        yield {name: server.url for name, server in running.items()}
        for server in running.values():
            server.close()


@pytest.fixture(params=CLIENTS)
def transport(request):
    return request.param


@pytest.fixture
def triton(transport):
    return CLIENTS[transport]


@pytest.fixture
def client(urls, transport):
    with CLIENTS[transport].InferenceServerClient(urls[transport]) as made:
        yield made


def tensor(library, name: str, array: np.ndarray, datatype: str):
    made = library.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def pair(library, first: np.ndarray, second: np.ndarray, datatype: str = "INT32") -> list:
    return [tensor(library, "INPUT0", first, datatype), tensor(library, "INPUT1", second, datatype)]


def test_simple_aio_infer_answers_requests_at_once(urls, transport):
    library = CLIENTS[transport]

    async def run():
        async with AIO[transport].InferenceServerClient(urls[transport]) as client:
            assert await client.is_server_live()
            assert await client.is_server_ready()
            assert await client.is_model_ready("simple")
            calls = [client.infer("simple", pair(library, NUMBERS, NUMBERS + n)) for n in range(16)]
            return await asyncio.gather(*calls)

    for number, result in enumerate(asyncio.run(run())):
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), 2 * NUMBERS + number)
        np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), 0 * NUMBERS - number)


def test_simple_aio_infer_of_an_absent_model_is_an_error(urls, transport):
    async def run():
        async with AIO[transport].InferenceServerClient(urls[transport]) as client:
            await client.infer("absent", pair(CLIENTS[transport], NUMBERS, NUMBERS))

    with pytest.raises(Exception, match='there is no model "absent"'):
        asyncio.run(run())


def test_simple_string_infer(client, triton):
    text = np.array([[str(number).encode() for number in range(16)]], object)
    result = client.infer("simple_string", pair(triton, text, np.full((1, 16), b"1", object), "BYTES"))
    assert [int(each) for each in result.as_numpy("OUTPUT0")[0]] == list(range(1, 17))
    assert [int(each) for each in result.as_numpy("OUTPUT1")[0]] == list(range(-1, 15))


@pytest.mark.parametrize("ids", [(1001, 1002), ("first", "second")])
def test_simple_sequence_sync_infer_keeps_two_sequences_apart(client, triton, ids):
    found: dict[object, list[int]] = {each: [] for each in ids}
    values = (11, 7, 5, 3)
    for index, value in enumerate(values):
        for sign, sequence in zip((1, -1), ids, strict=True):
            result = client.infer(
                "simple_sequence",
                [tensor(triton, "INPUT", np.array([sign * value], np.int32), "INT32")],
                sequence_id=sequence,
                sequence_start=index == 0,
                sequence_end=index == len(values) - 1,
            )
            found[sequence].append(int(result.as_numpy("OUTPUT")[0]))
    assert list(found.values()) == [[11, 18, 23, 26], [-11, -18, -23, -26]]


def test_simple_sequence_stream_infer(urls):
    answers: queue.Queue[tuple] = queue.Queue()
    with grpc.InferenceServerClient(urls["grpc"]) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        for number in (1, 2, 3):
            client.async_stream_infer(
                "simple_sequence",
                [tensor(grpc, "INPUT", np.array([number], np.int32), "INT32")],
                request_id=str(number),
                sequence_id=5,
                sequence_start=number == 1,
                sequence_end=number == 3,
            )
        found = [answers.get(timeout=60) for _ in range(3)]
        client.stop_stream()
    assert [error for _, error in found] == [None] * 3
    assert [(result.get_response().id, int(result.as_numpy("OUTPUT")[0])) for result, _ in found] == [
        ("1", 1),
        ("2", 3),
        ("3", 6),
    ]


@pytest.mark.parametrize("model", ["classifier", "ensemble"])
@pytest.mark.parametrize(("value", "label"), [(3, b"dark"), (130, b"grey"), (250, b"bright")])
def test_image_client_sends_the_bytes_of_a_picture(client, triton, model, value, label):
    given = tensor(triton, "INPUT", np.array([picture(value)], object), "BYTES")
    result = client.infer(model, [given])
    if model == "classifier":
        scores = result.as_numpy("scores")
        assert (scores.shape, LABELS[int(scores.argmax())].encode()) == ((1, 3), label)
    assert result.as_numpy("result").tolist() == [label]


def test_several_pictures_are_requests_at_once(urls, transport):
    """The examples send batches of pictures; the server makes batches of the requests itself."""
    library = CLIENTS[transport]
    inputs = [tensor(library, "INPUT", np.array([picture(value)], object), "BYTES") for value in (0, 128, 255)]

    async def run():
        async with AIO[transport].InferenceServerClient(urls[transport]) as client:
            return await asyncio.gather(*(client.infer("classifier", [each]) for each in inputs))

    assert [result.as_numpy("result")[0] for result in asyncio.run(run())] == [b"dark", b"grey", b"bright"]


def test_reuse_of_inputs_and_outputs(client, triton):
    """`reuse_infer_objects`: the same objects in several requests, with other data and for another model."""
    inputs = pair(triton, NUMBERS, NUMBERS)
    outputs = [triton.InferRequestedOutput("OUTPUT0"), triton.InferRequestedOutput("OUTPUT1")]
    for number in range(3):
        inputs[0].set_data_from_numpy(NUMBERS * number)
        result = client.infer("simple", inputs, outputs=outputs)
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), NUMBERS * (number + 1))
    only = client.infer("simple", inputs, outputs=outputs[1:])
    assert only.as_numpy("OUTPUT0") is None
    np.testing.assert_array_equal(only.as_numpy("OUTPUT1"), NUMBERS)


def test_custom_parameters_reach_the_model(client, triton):
    result = client.infer("any", [tensor(triton, "x", NUMBERS, "INT32")], parameters={"mine": "yes", "count": 3})
    np.testing.assert_array_equal(result.as_numpy("result"), NUMBERS)


def test_metadata_names_the_tensors_of_the_examples(client, transport):
    metadata = client.get_model_metadata("simple_sequence")
    if transport == "http":
        assert metadata["inputs"] == [{"name": "INPUT", "datatype": "INT32", "shape": [-1]}]
    else:
        (found,) = metadata.inputs
        assert (found.name, found.datatype, list(found.shape)) == ("INPUT", "INT32", [-1])


def test_shared_memory_is_an_error_that_says_so(client, triton):
    """The server does not list its extension; a client that registers a region, or refers to one, gets an error."""
    extensions = client.get_server_metadata()
    listed = extensions["extensions"] if triton is http else extensions.extensions
    assert "system_shared_memory" not in listed
    with pytest.raises(Exception, match="no shared memory; send"):
        client.register_system_shared_memory("region", "/region", 64)
    given = triton.InferInput("INPUT0", [1, 16], "INT32")
    given.set_shared_memory("region", 64)
    with pytest.raises(Exception, match="no shared memory"):
        client.infer("simple", [given, given])


def test_model_control_loads_and_unloads(triton, transport):
    make = {"http": Running, "grpc": RunningGrpc}[transport]
    server = make({"simple": "Identity"}, allow_control=True)
    try:
        with triton.InferenceServerClient(server.url) as client:
            for _ in range(2):
                client.unload_model("simple")
                assert not client.is_model_ready("simple")
                client.load_model("simple")
                assert client.is_model_ready("simple")
            with pytest.raises(Exception, match="cannot change the configuration"):
                client.load_model("simple", config="{}")
    finally:
        server.close()
