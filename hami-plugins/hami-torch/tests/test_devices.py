"""The device that is asked for or an error: never another one."""

from __future__ import annotations

import hami
import pytest
import torch
from helpers import message

from hami_torch.backend import TensorBackend, device_of

OF_A_DEVICE = [
    "hami-torch::CatTensor",
    "CropTensor",
    "CvtColorTensor(color=rgb)",
    "DecodeTensor",
    "hami-torch::FixTensor",
    "GpuTensor",
    "hami-torch::NormalizeTensor",
    "ResizeTensor(width=1,height=1)",
    "StreamGuard",
    "StreamGuard[Identity]",
    "With[StreamPool(2),Identity]",
    "SyncTensor",
    "TorchModel(factory=helpers:Double)",
]


@pytest.fixture
def machine(monkeypatch):
    """machine(devices=1): this process sees so many CUDA devices; machine(built=False): torch has no CUDA."""

    def set_up(*, built: bool = True, devices: int = 0):
        monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: built)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: devices > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)

    return set_up


def test_a_class_that_does_not_run_on_the_cpu_never_says_that_it_would(machine):
    machine(devices=0)
    with pytest.raises(hami.ConfigError) as raised:
        device_of("cuda", "Engine", ("cuda",))
    assert message(raised) == (
        f'Engine: device "cuda" is not there: torch {torch.__version__} sees no CUDA device; the driver is missing or '
        "too old for it, or CUDA_VISIBLE_DEVICES hides them"
    )
    with pytest.raises(hami.ConfigError, match='Engine: "device" is cuda or cuda:N, got "cpu"'):
        device_of("cpu", "Engine", ("cuda",))


@pytest.mark.parametrize("backend", OF_A_DEVICE)
def test_without_a_gpu_nothing_runs_on_the_cpu_unasked(machine, backend):
    machine(devices=0)
    text = backend.replace("factory=helpers:Double", "factory='helpers:Double'")
    with pytest.raises(hami.ConfigError) as raised:
        hami.pipe(text)
    name = text.removeprefix("hami-torch::").removeprefix("With[").partition("[")[0].partition("(")[0]
    assert message(raised) == (
        f'{name}: device "cuda" is not there: torch {torch.__version__} sees no CUDA device; the driver is missing or '
        'too old for it, or CUDA_VISIBLE_DEVICES hides them; or say device = "cpu"'
    )


def test_a_torch_without_cuda_is_named(machine):
    machine(built=False)
    with pytest.raises(hami.ConfigError) as raised:
        hami.pipe({"backend": "GpuTensor", "device": "cuda:1"})
    assert message(raised) == (
        f'GpuTensor: device "cuda:1" is not there: the installed torch {torch.__version__} is built without CUDA; '
        'install a build of torch with CUDA; or say device = "cpu"'
    )


def test_an_index_that_is_not_there_names_those_that_are(machine):
    machine(devices=2)
    with pytest.raises(hami.ConfigError) as raised:
        hami.pipe({"backend": "GpuTensor", "device": "cuda:2"})
    assert message(raised) == (
        'GpuTensor: device "cuda:2" is not there: this process sees cuda:0, cuda:1; use one of these'
    )
    assert device_of(" CUDA ", "GpuTensor") == torch.device("cuda:0")
    assert device_of("cuda:1", "GpuTensor") == torch.device("cuda:1")


@pytest.mark.parametrize("name", ["gpu", "mps", "cuda:x", ""])
def test_what_is_no_device_is_refused(name):
    with pytest.raises(hami.ConfigError) as raised:
        hami.pipe({"backend": "GpuTensor", "device": name})
    assert message(raised) == f'GpuTensor: "device" is cuda, cuda:N or cpu, got "{name}"'


def test_a_tensor_on_another_device_is_refused_and_told_where_to_go(pipe):
    """torch's device without memory stands in for the other one here; tests/gpu has the real ones."""
    with pytest.raises(hami.DataTypeError) as raised:
        pipe("ResizeTensor", width=1, height=1)({"data": torch.zeros(3, 2, 2, device="meta")})
    assert message(raised) == (
        "ResizeTensor takes a tensor on cpu, got float32 [3, 2, 2] on meta; put CpuTensor before it"
    )


def test_what_a_backend_runs_finds_its_device_current_and_the_thread_has_its_own_back(monkeypatch):
    """Much code says "cuda" and means the device of its input."""
    current = [0]

    class Device:
        def __init__(self, device):
            self.index = device.index

        def __enter__(self):
            self.before, current[0] = current[0], self.index

        def __exit__(self, *_):
            current[0] = self.before

    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: current[0], raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0, raising=False)

    class Tells(TensorBackend):
        def run(self, batch):
            batch.append(current[0])
            if batch[0] == "fail":
                raise RuntimeError

    backend = Tells()
    for device, seen in (("cuda:0", 0), ("cuda:1", 1), ("cpu", 0)):
        backend.torch_device = torch.device(device)
        batch = [""]
        backend.forward(batch)
        assert (batch, current) == (["", seen], [0])
    backend.torch_device = torch.device("cuda:1")
    with pytest.raises(RuntimeError):
        backend.forward(["fail"])
    assert current == [0]
