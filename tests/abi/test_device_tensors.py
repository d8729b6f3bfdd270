"""Tensors in device memory cross the ABI, and are ordered with the stream of their reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import HERE, Toolchain

Build = Callable[..., Path]
STREAM = 4096  # of the plugin's instances


@pytest.fixture
def prefix(toolchain: Toolchain, build: Build) -> str:
    hami.native.register_plugin(build(toolchain, HERE / "plugins" / "device.cpp"))
    return toolchain.prefix


@pytest.fixture
def tensor(prefix: str) -> Any:
    """A tensor [[0, 1, 2], [3, 4, 5]] in device memory"""
    with hami.pipe(f"{prefix}MakeOnDevice") as pipe:
        return pipe({"data": 0})["result"]


def run(expression: str, data: Any) -> Any:
    with hami.pipe(expression) as pipe:
        return pipe({"data": data})["result"]


def test_python_sees_the_shape_and_the_device_of_a_tensor(tensor: Any) -> None:
    assert (tensor.shape, tensor.dtype, tensor.nbytes, tensor.device) == ((2, 3), "uint8", 6, "cuda:0")
    assert tensor.__dlpack_device__() == (2, 0)
    assert repr(tensor) == "<hami.Tensor uint8 [2, 3] on cuda:0>"
    assert tensor[1, 1:].shape == (2,)


@pytest.mark.parametrize("read", [lambda it: it.tolist(), lambda it: it[0, 0], lambda it: hami.to_numpy(it)])
def test_elements_in_device_memory_are_not_read(tensor: Any, read: Callable[[Any], Any]) -> None:
    with pytest.raises(hami.DataTypeError):
        read(tensor)
    with pytest.raises(BufferError):
        memoryview(tensor)


def test_an_export_to_dlpack_is_ordered_with_the_stream_of_the_consumer(tensor: Any) -> None:
    assert "dltensor" in repr(tensor.__dlpack__(stream=7))
    assert "dltensor" in repr(tensor.__dlpack__(stream=-1))  # asks for no order
    with pytest.raises(hami.Error, match="the stream is lost"):
        tensor.__dlpack__(stream=13)
    with pytest.raises(hami.Error, match="the stream is lost"):
        tensor[1].__dlpack__(stream=13)  # a view is ordered as its tensor
    with pytest.raises(BufferError, match="another device"):
        tensor.__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError, match="copy it after the export"):
        tensor.__dlpack__(copy=True)


def test_backends_of_one_instance_share_a_stream(prefix: str, tensor: Any) -> None:
    assert run(f"S[{prefix}MakeOnDevice,{prefix}ReadOnDevice]", 0) == [True, 5, STREAM]
    assert run(f"{prefix}ReadOnDevice", tensor) == [True, 5, 0]
    assert run(f"{prefix}ReadOnDevice", tensor[0, 1:]) == [True, 2, 0]


def test_a_tensor_of_python_is_ordered_with_the_stream_of_the_instance(prefix: str, tensor: Any) -> None:
    asked = []

    class Exporter:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

        def __dlpack__(self, **options: Any) -> Any:
            asked.append(options["stream"])
            return tensor.__dlpack__(**options | {"stream": -1})

    @hami.register(f"{prefix}Export")
    class Export(hami.Backend):
        def forward(self, batch: Any) -> None:
            for item in batch:
                item["result"] = Exporter()

    assert run(f"S[{prefix}MakeOnDevice,{prefix}Export,{prefix}ReadOnDevice]", 0) == [True, 5, STREAM]
    assert asked == [STREAM]


def test_plugins_of_abi_1_0_get_an_error_instead_of_device_memory(prefix: str, tensor: Any) -> None:
    expected = "the tensor is on cuda:0; the core reads tensors in CPU memory only: put CpuTensor before it"
    assert run(f"{prefix}ReadOnCpu", tensor) == [expected, expected]


def test_the_core_hands_device_tensors_to_the_plugin_of_the_device(tensor: Any) -> None:
    # The words are those of the core if no plugin has it, else of hami-cuda or hami-torch without a GPU.
    with pytest.raises(hami.Error, match=r"SoftmaxTensor cannot take data on cuda:0|the NVIDIA driver|torch"):
        run("SoftmaxTensor", tensor)
