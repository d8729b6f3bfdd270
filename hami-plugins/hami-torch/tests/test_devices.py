"""The parameter `device`: the requested device or an error, never another device."""

from __future__ import annotations

import hami
import pytest
import torch
from helpers import message

from hami_torch.backend import TensorBackend, device_of

WITH_DEVICE = [
    "GpuTensor",
    "StreamGuard",
    "StreamGuard[Identity]",
    "With[StreamPool(2),Identity]",
    "SyncTensor",
    "TorchModel(factory=helpers:Double)",
]


@pytest.fixture
def machine(monkeypatch):
    """machine(devices=1): the process sees one CUDA device; machine(built=False): torch is built without CUDA."""

    def set_up(*, built: bool = True, devices: int = 0):
        monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: built)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: devices > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)

    return set_up


def test_the_error_of_a_gpu_only_class_does_not_suggest_the_cpu(machine):
    machine(devices=0)
    with pytest.raises(hami.ConfigError) as raised:
        device_of("cuda", "Engine", ("cuda",))
    assert message(raised) == (
        f'Engine: device "cuda" is not available: torch {torch.__version__} finds no CUDA device; check that a recent '
        "CUDA driver is installed and that CUDA_VISIBLE_DEVICES does not hide the GPU"
    )
    with pytest.raises(hami.ConfigError, match='Engine: "device" must be cuda, cuda:N or N, got "cpu"'):
        device_of("cpu", "Engine", ("cuda",))


@pytest.mark.parametrize("backend", WITH_DEVICE)
def test_without_a_gpu_no_backend_falls_back_to_the_cpu(machine, backend):
    machine(devices=0)
    text = backend.replace("factory=helpers:Double", "factory='helpers:Double'")
    with pytest.raises(hami.ConfigError) as raised:
        hami.pipe(text)
    name = text.removeprefix("With[").partition("[")[0].partition("(")[0]
    assert message(raised) == (
        f'{name}: device "cuda" is not available: torch {torch.__version__} finds no CUDA device; check that a recent '
        'CUDA driver is installed and that CUDA_VISIBLE_DEVICES does not hide the GPU, or set device = "cpu"'
    )


def test_a_torch_built_without_cuda_is_named(machine):
    machine(built=False)
    with pytest.raises(hami.ConfigError) as raised:
        hami.pipe({"backend": "GpuTensor", "device": "cuda:1"})
    assert message(raised) == (
        f'GpuTensor: device "cuda:1" is not available: the installed torch {torch.__version__} is built without CUDA; '
        'install a build of torch with CUDA, or set device = "cpu"'
    )


def test_the_error_for_a_missing_device_names_the_available_ones(machine):
    machine(devices=2)
    with pytest.raises(hami.ConfigError) as raised:
        hami.pipe({"backend": "GpuTensor", "device": "cuda:2"})
    assert message(raised) == (
        'GpuTensor: device "cuda:2" is not available: this process sees cuda:0, cuda:1; use one of these'
    )
    assert device_of(" CUDA ", "GpuTensor") == torch.device("cuda:0")
    assert device_of("cuda:1", "GpuTensor") == device_of("1", "GpuTensor") == torch.device("cuda:1")


@pytest.mark.parametrize("name", ["gpu", "mps", "cuda:x", ""])
def test_an_invalid_device_name_is_rejected(name):
    with pytest.raises(hami.ConfigError) as raised:
        hami.pipe({"backend": "GpuTensor", "device": name})
    assert message(raised) == f'GpuTensor: "device" must be cuda, cuda:N, N or cpu, got "{name}"'


def test_a_tensor_on_another_device_is_rejected_with_the_remedy(pipe):
    """Uses torch's device "meta", which has no memory, as the other device; tests/gpu uses real ones."""
    with pytest.raises(hami.DataTypeError) as raised:
        pipe("TorchModel", factory="helpers:Double")({"data": torch.zeros(3, 2, 2, device="meta")})
    assert message(raised) == (
        "TorchModel takes a tensor on cpu, got float32 [3, 2, 2] on meta; put CpuTensor before it"
    )


def test_the_device_is_current_during_a_run_and_restored_afterwards(monkeypatch):
    """Much code uses "cuda" and expects the device of its input."""
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

    class AppendsCurrentDevice(TensorBackend):
        def run(self, batch):
            batch.append(current[0])
            if batch[0] == "fail":
                raise RuntimeError

    backend = AppendsCurrentDevice()
    for device, expected in (("cuda:0", 0), ("cuda:1", 1), ("cpu", 0)):
        backend.torch_device = torch.device(device)
        batch = [""]
        backend.forward(batch)
        assert (batch, current) == (["", expected], [0])
    backend.torch_device = torch.device("cuda:1")
    with pytest.raises(RuntimeError):
        backend.forward(["fail"])
    assert current == [0]
