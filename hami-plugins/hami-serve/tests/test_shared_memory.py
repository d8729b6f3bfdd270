"""Tensors in system shared memory, as the examples of Triton (simple_http_shm_client and others) use it."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator

import numpy as np
import pytest
from conftest import Running, RunningGrpc, io, models

reason = "needs tritonclient[http,grpc] and hami-serve[grpc]"
http = pytest.importorskip("tritonclient.http", reason=reason, exc_type=ImportError)
grpc = pytest.importorskip("tritonclient.grpc", reason=reason, exc_type=ImportError)
memory = pytest.importorskip("tritonclient.utils.shared_memory", reason=reason, exc_type=ImportError)
pytest.importorskip("grpc_health", reason=reason)
pytest.importorskip("grpc_reflection", reason=reason)

from hami_serve.budget import Budget  # noqa: E402
from hami_serve.errors import BadRequest, TooLarge  # noqa: E402
from hami_serve.shared_memory import Memory, Regions  # noqa: E402

TRITON = {"http": http, "grpc": grpc}
FIRST = np.arange(16, dtype=np.int32).reshape(1, 16)
SECOND = np.ones((1, 16), np.int32)
SIZE = FIRST.nbytes
MODELS = {**models(), "native": {"source": "Identity", **io("INT32", [-1, 16], ("x", "y"))}}


@pytest.fixture(scope="module", params=["http", "grpc"])
def triton(request):
    return request.param, TRITON[request.param]


@pytest.fixture(scope="module")
def server(triton):
    running = {"http": Running, "grpc": RunningGrpc}[triton[0]](MODELS, shared_memory=True)
    yield running
    running.close()


@pytest.fixture
def client(triton, server) -> Iterator[object]:
    with triton[1].InferenceServerClient(server.url) as made:
        yield made
        made.unregister_system_shared_memory()


@pytest.fixture
def region():
    """region(size) makes an object of shared memory; it returns a name, the key and the handle."""
    made = []

    def make(size: int):
        name = f"hami-{uuid.uuid4().hex[:12]}"
        made.append(memory.create_shared_memory_region(name, f"/{name}", size))
        return name, f"/{name}", made[-1]

    yield make
    for each in made:
        memory.destroy_shared_memory_region(each)


def given(triton, name: str, region: str, offset: int = 0, datatype: str = "INT32", size: int = SIZE):
    tensor = triton[1].InferInput(name, [1, 16], datatype)
    tensor.set_shared_memory(region, size, offset)
    return tensor


def wanted(triton, name: str, region: str, offset: int = 0, size: int = SIZE):
    output = triton[1].InferRequestedOutput(name)
    output.set_shared_memory(region, size, offset)
    return output


def test_inputs_and_outputs_are_in_regions(triton, client, region):
    source, source_key, inputs = region(2 * SIZE)
    target, target_key, outputs = region(2 * SIZE)
    memory.set_shared_memory_region(inputs, [FIRST, SECOND])
    client.register_system_shared_memory(source, source_key, 2 * SIZE)
    client.register_system_shared_memory(target, target_key, 2 * SIZE)
    asked = [given(triton, "INPUT0", source), given(triton, "INPUT1", source, SIZE)]
    result = client.infer(
        "simple", asked, outputs=[wanted(triton, "OUTPUT0", target), wanted(triton, "OUTPUT1", target, SIZE)]
    )
    for index, expected in enumerate((FIRST + SECOND, FIRST - SECOND)):
        output = result.get_output(f"OUTPUT{index}")
        assert (output["shape"] if triton[0] == "http" else list(output.shape)) == [1, 16]
        found = memory.get_contents_as_numpy(outputs, np.int32, [1, 16], index * SIZE)
        np.testing.assert_array_equal(found, expected)


def test_tensors_of_one_request_may_be_in_regions_or_not(triton, client, region):
    source, key, inputs = region(SIZE)
    memory.set_shared_memory_region(inputs, [FIRST])
    client.register_system_shared_memory(source, key, SIZE)
    sent = triton[1].InferInput("INPUT1", [1, 16], "INT32")
    sent.set_data_from_numpy(SECOND)
    outputs = [wanted(triton, "OUTPUT0", source), triton[1].InferRequestedOutput("OUTPUT1")]
    result = client.infer("simple", [given(triton, "INPUT0", source), sent], outputs=outputs)
    np.testing.assert_array_equal(memory.get_contents_as_numpy(inputs, np.int32, [1, 16]), FIRST + SECOND)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), FIRST - SECOND)


def test_a_model_that_the_native_door_calls_has_regions_too(triton, client, region):
    source, key, inputs = region(SIZE)
    memory.set_shared_memory_region(inputs, [FIRST])
    client.register_system_shared_memory(source, key, SIZE)
    result = client.infer("native", [given(triton, "x", source)])
    np.testing.assert_array_equal(result.as_numpy("y"), FIRST)


def test_text_is_in_regions(triton, client, region):
    texts = np.array([[str(number).encode() for number in range(16)]], object)
    from tritonclient.utils import serialize_byte_tensor

    data = serialize_byte_tensor(texts)
    source, key, inputs = region(512)
    memory.set_shared_memory_region(inputs, [data])
    client.register_system_shared_memory(source, key, 512)
    size = len(data.item())
    asked = [given(triton, name, source, 0, "BYTES", size) for name in ("INPUT0", "INPUT1")]
    result = client.infer("simple_string", asked, outputs=[triton[1].InferRequestedOutput("OUTPUT0")])
    assert [int(each) for each in result.as_numpy("OUTPUT0").flat] == [2 * number for number in range(16)]


def test_regions_are_listed_and_forgotten(triton, client, region):
    name, key, _ = region(100)
    client.register_system_shared_memory(name, key, 60, offset=40)
    extensions = client.get_server_metadata()
    assert "system_shared_memory" in (extensions["extensions"] if triton[0] == "http" else extensions.extensions)
    for asked in (name, ""):
        status = client.get_system_shared_memory_status(asked)
        (found,) = status if triton[0] == "http" else status.regions.values()
        if triton[0] == "http":
            assert found == {"name": name, "key": key, "offset": 40, "byte_size": 60}
        else:
            assert (found.name, found.key, found.offset, found.byte_size) == (name, key, 40, 60)
    with pytest.raises(Exception, match=r"there is a region .* already"):
        client.register_system_shared_memory(name, key, 60)
    client.unregister_system_shared_memory(name)
    with pytest.raises(Exception, match="is not registered"):
        client.get_system_shared_memory_status(name)


@pytest.mark.parametrize(
    ("key", "size", "offset", "message"),
    [
        ("/hami-none", 10, 0, "cannot be opened: No such file"),
        ("/../etc/passwd", 10, 0, "without another slash"),
        ("..", 10, 0, "without another slash"),
        ("", 10, 0, "without another slash"),
        (None, 101, 0, "does not fit"),
        (None, 1, 100, "does not fit"),
        (None, 0, 0, "the byte size of the region is an integer of at least 1"),
    ],
)
def test_a_region_that_cannot_be_used_is_rejected(client, region, key, size, offset, message):
    name, own, _ = region(100)
    with pytest.raises(Exception, match=message):
        client.register_system_shared_memory(name, own if key is None else key, size, offset=offset)


@pytest.mark.parametrize(
    ("offset", "size", "message"),
    [(1, SIZE, "bytes at 1 of a region"), (0, SIZE - 4, "has 60 bytes; INT32 of shape"), (0, 1 << 40, "of a region")],
)
def test_a_tensor_outside_of_its_region_is_rejected(triton, client, region, offset, size, message):
    name, key, _ = region(SIZE)
    client.register_system_shared_memory(name, key, SIZE)
    with pytest.raises(Exception, match=message):
        client.infer("native", [given(triton, "x", name, offset, size=size)])
    with pytest.raises(Exception, match="is not registered"):
        client.infer("native", [given(triton, "x", "another")])


def test_a_region_that_its_client_shrinks_is_an_error_of_the_client(triton, client, region):
    name, key, _ = region(1 << 16)
    client.register_system_shared_memory(name, key, 1 << 16)
    os.truncate(f"/dev/shm{key}", 0)
    with pytest.raises(Exception, match="has shrunk the shared memory"):
        client.infer("native", [given(triton, "x", name)])
    sent = triton[1].InferInput("x", [1, 16], "INT32")
    sent.set_data_from_numpy(FIRST)
    with pytest.raises(Exception, match="has shrunk the shared memory"):
        client.infer("native", [sent], outputs=[wanted(triton, "y", name)])
    assert os.stat(f"/dev/shm{key}").st_size == 0


def test_an_output_that_is_larger_than_its_place_is_rejected(triton, client, region):
    name, key, _ = region(SIZE)
    client.register_system_shared_memory(name, key, SIZE)
    sent = triton[1].InferInput("x", [1, 16], "INT32")
    sent.set_data_from_numpy(FIRST)
    with pytest.raises(Exception, match="has 64 bytes; its shared_memory_byte_size is 60"):
        client.infer("native", [sent], outputs=[wanted(triton, "y", name, size=60)])


def test_a_key_that_no_file_can_have_is_rejected():
    """JSON can have half of a surrogate pair."""
    with pytest.raises(BadRequest, match="without another slash"):
        Regions(enabled=True).register("name", "/\ud800", 0, 1)


def test_a_region_without_pages_takes_no_memory_that_the_server_does_not_have(region):
    """A client makes an object of any size without a byte of memory; to read it takes the whole size."""
    name, key, _ = region(SIZE)
    os.truncate(f"/dev/shm{key}", 1 << 40)
    regions, budget = Regions(enabled=True), Budget(1 << 20)
    regions.register(name, key, 0, 1 << 40)
    place = {"shared_memory_region": name, "shared_memory_byte_size": 1 << 40}
    lease = budget.lease()
    with pytest.raises(TooLarge, match="needs 1048576 MiB; the open requests of this server may have 1 MiB together"):
        Memory(regions, lease).read('input "x"', "INT8", place)
    place["shared_memory_byte_size"] = 1 << 20
    with pytest.raises(TooLarge, match="needs 8 MiB"):  # for the objects of its elements
        Memory(regions, lease).read('input "x"', "BYTES", place)
    assert budget.used == 0
    assert len(Memory(regions, lease).read('input "x"', "INT8", place)) == 1 << 20


def test_an_output_for_which_shared_memory_has_no_pages_is_an_error_of_the_client(triton, client, region, monkeypatch):
    name, key, _ = region(SIZE)
    client.register_system_shared_memory(name, key, SIZE)
    sent = triton[1].InferInput("x", [1, 16], "INT32")
    sent.set_data_from_numpy(FIRST)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(Exception, match="cannot be written: No space left on device"):
        client.infer("native", [sent], outputs=[wanted(triton, "y", name)])


def test_a_region_that_is_forgotten_leaves_no_descriptor(client, region):
    name, key, _ = region(SIZE)

    def opened() -> int:
        return sum(
            os.path.realpath(f"/proc/self/fd/{each}") == f"/dev/shm{key}" for each in os.listdir("/proc/self/fd")
        )

    before = opened()
    for _ in range(3):
        client.register_system_shared_memory(name, key, SIZE)
        assert opened() == before + 1
        client.unregister_system_shared_memory(name)
    assert opened() == before
