"""Tensors on the GPU: copies, and rejected devices."""

from __future__ import annotations

import hami
import numpy as np
import pytest
import torch
from helpers import message


def test_arrays_are_copied_to_the_gpu_and_back(pipe):
    data = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": torch.ones(3, dtype=torch.bfloat16).pin_memory()}
    on_gpu = pipe("S[GpuTensor,SyncTensor]")({"data": data})["result"]
    assert {part.device for part in on_gpu.values()} == {torch.device("cuda:0")}
    back = pipe("S[GpuTensor,CpuTensor]")({"data": data})["result"]
    assert np.array_equal(hami.to_numpy(back["a"]), data["a"])
    assert torch.equal(back["b"], data["b"])


def test_a_tensor_on_the_gpu_is_passed_on_without_a_copy(pipe):
    data = torch.ones(3, device="cuda")
    assert pipe("GpuTensor")({"data": data})["result"] is data


@pytest.mark.parametrize(
    ("backend", "device", "given", "text"),
    [
        (
            "TorchModel(factory='helpers:Double')",
            "cuda",
            "cpu",
            "TorchModel takes a tensor on cuda:0, got float32 [1, 3, 2, 2] on cpu; "
            'put GpuTensor before it, or set device = "cpu"',
        ),
        (
            "TorchModel(factory='helpers:Double')",
            "cpu",
            "cuda:0",
            "TorchModel takes a tensor on cpu, got float32 [1, 3, 2, 2] on cuda:0; "
            'put CpuTensor before it, or set device = "cuda:0"',
        ),
    ],
)
def test_a_tensor_on_the_wrong_device_is_rejected(pipe, backend, device, given, text):
    with pytest.raises(hami.DataTypeError) as raised:
        pipe(backend, device=device)({"data": torch.zeros(1, 3, 2, 2, device=given)})
    assert message(raised) == text


def test_a_missing_device_is_rejected(pipe):
    count = torch.cuda.device_count()
    with pytest.raises(hami.ConfigError) as raised:
        pipe("GpuTensor", device=f"cuda:{count}")
    devices = ", ".join(f"cuda:{index}" for index in range(count))
    assert message(raised) == (
        f'GpuTensor: device "cuda:{count}" is not available: this process sees {devices}; use one of these'
    )


def test_the_last_device_can_be_selected(pipe):
    last = torch.cuda.device_count() - 1
    device = torch.device("cuda", last)
    path = pipe(
        "S[GpuTensor,TorchModel,SyncTensor]", factory="helpers:Double", device=str(device), graphs=[1, 2], row_shape=[2]
    )
    result = path({"data": torch.ones(1, 2)})["result"]
    assert result.device == device
    assert result.tolist() == [[2, 2]]


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (
            torch.zeros(1, 3, 8, 8, dtype=torch.float64),
            hami.DataTypeError,
            'TorchModel: input "data" expects float32, got float64, which cannot be converted without loss',
        ),
        (
            torch.zeros(1, 2, 8, 8),
            hami.RequestError,
            "TorchModel: the model failed on float32 [1, 2, 8, 8]: ",
        ),
    ],
)
def test_a_wrong_dtype_or_shape_is_named_and_the_pipe_stays_usable(pipe, data, error, text):
    arguments = ["in_channels=3", "out_channels=1", "kernel_size=3"]
    model = pipe(
        "S[GpuTensor,TorchModel,SyncTensor]",
        factory="torch.nn:Conv2d",
        arguments=arguments,
        graphs=[1],
        row_shape=[3, 8, 8],
    )
    with pytest.raises(error) as raised:
        model({"data": data})
    assert message(raised).startswith(text)
    assert model({"data": torch.zeros(1, 3, 8, 8)})["result"].shape == (1, 1, 6, 6)
