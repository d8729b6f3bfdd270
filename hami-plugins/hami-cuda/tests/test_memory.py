"""hami_cuda.device and hami_cuda.memory: what backends in Python use, on the fake driver."""

from __future__ import annotations

import ctypes
from typing import Any

import hami
import pytest
from hami_tensor import Device

from hami_cuda import device
from hami_cuda.memory import InstanceStream

np = pytest.importorskip("numpy", reason="numpy is not installed")
pytestmark = pytest.mark.usefixtures("fake")
DEVICE = Device("cuda:0")


@pytest.fixture
def stream(fake):
    opened = InstanceStream({}, DEVICE, "Test")
    yield opened
    opened.close()


@pytest.fixture
def tensor(fake):
    """tensor(array) copies an array to the device."""
    with hami.pipe("GpuTensor") as move:
        yield lambda array: move({"data": array})["result"]


def on_cpu(given: Any) -> Any:
    with hami.pipe("hami-cuda::CpuTensor") as back:
        return hami.to_numpy(back({"data": given})["result"])


def test_devices_are_found_and_described(monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "2")
    assert device.devices() == ["cuda:0", "cuda:1"]
    assert device.find_device("cuda:1", "Test") == Device("cuda:1")
    assert device.gpu_name(Device("cuda:1")) == "Fake GPU 1"
    assert device.compute_capability(DEVICE) == (9, 0)
    with pytest.raises(hami.ConfigError, match='Test: device "cuda:2" is not available'):
        device.find_device("cuda:2", "Test")
    with pytest.raises(hami.ConfigError, match='"device" must be cuda, cuda:N or N, got "cpu"'):
        device.find_device("cpu", "Test")


def test_a_device_is_current_inside_a_block_only(fake):
    before = fake.fake_pushed()
    with device.as_current(DEVICE):
        assert fake.fake_pushed() == before + 1
    assert fake.fake_pushed() == before


def test_a_block_of_memory_is_a_tensor_that_frees_it(fake, stream):
    before = fake.fake_allocations()
    with stream:
        block = stream.empty("float16", (2, 3))
    assert (block.tensor.dtype, block.tensor.shape, block.tensor.device) == ("float16", (2, 3), "cuda:0")
    assert block.address % 256 == 0
    assert fake.fake_allocations() == before + 1
    waits = fake.fake_stream_waits()
    block.tensor.__dlpack__(stream=stream.handle)
    assert fake.fake_stream_waits() == waits
    block.tensor.__dlpack__(stream=1)
    assert fake.fake_stream_waits() == waits + 1
    del block
    assert fake.fake_allocations() == before


def test_a_tensor_is_read_where_it_is_or_as_a_contiguous_copy(fake, stream, tensor):
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    given = tensor(array)
    before = fake.fake_launches()
    with stream:
        reading = stream.read(given)
        assert (reading.dtype, reading.shape, str(reading)) == ("float32", (4, 6), "float32 [4, 6]")
        assert reading.address == stream.read(given).address
        assert fake.fake_launches() == before
        for part, expected in ((given[1:2], array[1:2]), (given[:, ::2], array[:, ::2])):
            assert stream.read(part).address % 256 == 0
            copied = np.ctypeslib.as_array(_floats(stream.read(part).address), (expected.size,))
            assert (copied.reshape(expected.shape) == expected).all()


def _floats(address: int) -> Any:
    return ctypes.cast(address, ctypes.POINTER(ctypes.c_float))


def test_a_tensor_without_elements_has_an_address(stream, tensor):
    with stream:
        assert stream.read(tensor(np.zeros((2, 0), np.float32))).address


def test_what_was_read_is_kept_until_the_work_is_done(fake, stream, tensor, monkeypatch):
    before = fake.fake_allocations()
    given = tensor(np.zeros(100))
    monkeypatch.setenv("FAKE_CUDA_BUSY", "1")
    with stream:
        stream.read(given)
        del given
        assert fake.fake_allocations() == before + 1
    assert fake.fake_allocations() == before + 1
    stream.wait()
    assert fake.fake_allocations() == before


def test_captured_work_runs_again_with_one_launch(fake, stream):
    """The first run is as usual; the second is captured, and runs with each launch."""
    handles, runs = [], []

    @ctypes.CFUNCTYPE(None)
    def work() -> None:
        runs.append(len(handles))

    def submit(handle: int) -> None:
        handles.append(handle)
        if not fake.fake_record(ctypes.c_size_t(handle), work):
            work()

    before = fake.fake_graphs()
    graph = stream.capture(submit)
    assert runs == [1]
    assert handles[0] == handles[1] != stream.handle
    graph.launch()
    graph.launch()
    assert runs == [1, 2, 2]
    assert fake.fake_graphs() == before + 1
    graph.close()
    graph.close()  # once more does nothing
    assert fake.fake_graphs() == before


@pytest.mark.parametrize("fails", ["in the first run", "while it is captured", "at the end"])
def test_a_capture_that_fails_leaves_the_stream_usable(fake, stream, monkeypatch, fails):
    calls = []

    def submit(handle: int) -> None:
        calls.append(handle)
        if (fails, len(calls)) in (("in the first run", 1), ("while it is captured", 2)):
            raise ValueError("not today")

    if fails == "at the end":
        monkeypatch.setenv("FAKE_CUDA_CAPTURE", "901")
    before = fake.fake_graphs()
    with pytest.raises(hami.RequestError if fails == "at the end" else ValueError):
        stream.capture(submit)
    monkeypatch.delenv("FAKE_CUDA_CAPTURE", raising=False)
    fails = ""
    stream.capture(submit).close()
    assert fake.fake_graphs() == before


def test_readings_and_blocks_are_copied_in_the_order_of_the_stream(stream, tensor):
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    given = tensor(array)
    with stream:
        block = stream.empty("float32", (4, 6))
        stream.read(given).copy_to(block.address)
        assert (on_cpu(stream.copy(block, (2, 6)).tensor) == array[:2]).all()
        stream.read(given[:, ::2]).copy_to(block.address)
        assert (on_cpu(stream.copy(block, (4, 3)).tensor) == array[:, ::2]).all()


def test_a_producer_before_dlpack_1_is_read(stream, tensor):
    class Producer:
        def __init__(self, given: Any) -> None:
            self.given = given

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.given.__dlpack_device__()

        def __dlpack__(self, *, stream: int) -> Any:
            return self.given.__dlpack__(stream=stream)

    given = tensor(np.arange(3, dtype=np.int64))
    with stream:
        reading = stream.read(Producer(given))
        assert (reading.dtype, reading.shape) == ("int64", (3,))
        assert reading.address == stream.read(given).address


def test_what_is_not_a_tensor_on_the_device_is_refused(stream, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "2")
    with hami.pipe("GpuTensor(device=cuda:1)") as move:
        other = move({"data": np.zeros(2)})["result"]
    for given, text in (
        ("text", "or another object with DLPack, got str"),
        (np.zeros(2), "got one on the CPU; put GpuTensor before it"),
        (other, "got one on cuda:1; put GpuTensor before it"),
    ):
        with stream, pytest.raises(hami.DataTypeError) as raised:
            stream.read(given)
        assert str(raised.value).startswith("Test takes a tensor on cuda:0, ")
        assert str(raised.value).endswith(text)


def test_out_of_memory_is_a_memory_error(stream, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_MEMORY", "1000")
    with stream, pytest.raises(MemoryError) as raised:
        stream.empty("float32", (1000,))
    assert str(raised.value).startswith("Test: cannot allocate 4000 bytes on the device: CUDA_ERROR_OUT_OF_MEMORY")
    assert "Lower `max` or `instance_num`" in str(raised.value)
    monkeypatch.delenv("FAKE_CUDA_MEMORY")
    stream.trim()
    assert stream.empty("float32", (1000,)).tensor.nbytes == 4000


@pytest.mark.parametrize("order", ["S[GpuTensor,UsesStream]", "S[UsesStream,SyncTensor]"])
def test_an_instance_has_one_stream_for_native_and_python_backends(fake, order):
    handles = []

    @hami.register
    class UsesStream(hami.Backend):
        def init(self, options):
            self.stream = InstanceStream(options, DEVICE, "UsesStream")
            self.options = options

        def forward(self, batch):
            handles.append((self.stream.handle, self.options["stream.cuda:0"]))
            for item in batch:
                with self.stream:
                    item["result"] = self.stream.empty("uint8", (3,)).tensor

        def close(self):
            self.stream.close()
            self.stream.close()  # once more does nothing

    before = fake.fake_stream_waits()
    with hami.pipe(order) as pipe:
        result = pipe({"data": np.zeros(2)})["result"]
        assert fake.fake_stream_waits() == before
        assert on_cpu(result).shape == (3,)
    ((own, shared),) = handles
    assert own == shared != 0
