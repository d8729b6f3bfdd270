"""GpuTensor and CpuTensor on the CPU, and the tensors of other packages that they take."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import hami
import numpy as np
import pytest
import torch
from helpers import message

from hami_torch import _tensor

NUMPY = tuple(map(int, np.__version__.split(".")[:2]))


def test_arrays_become_torch_tensors_in_the_same_structure(run):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = run("GpuTensor", data={"a": array, "b": torch.ones(1)})["result"]
    assert torch.equal(result["a"], torch.from_numpy(array))
    assert torch.equal(result["b"], torch.ones(1))
    assert [part.shape for part in run("GpuTensor", data=[array, array])["result"]] == [(2, 3), (2, 3)]


THROUGH_THE_CORE = pytest.param(  # as a hami.Tensor
    "S[FixTensor,GpuTensor]",
    marks=pytest.mark.skipif(NUMPY < (2, 1), reason="NumPy before 2.1 does not export read-only arrays through DLPack"),
)


@pytest.mark.parametrize("backend", ["GpuTensor", THROUGH_THE_CORE])
def test_a_read_only_array_is_copied(run, backend):
    array = np.ones(3)
    array.flags.writeable = False
    result = run(backend, data=array)["result"]
    result += 1
    assert array.tolist() == [1, 1, 1]


@pytest.mark.parametrize("backend", ["GpuTensor", "S[FixTensor,GpuTensor]"])
def test_an_array_with_negative_strides_is_copied(backend):
    """In a separate process, because torch aborts the process if it gets such an array."""
    program = (
        "import hami, numpy as np\n"
        "array = np.arange(6.0).reshape(2, 3)[::-1, ::-1]\n"
        f"with hami.pipe({{'backend': {backend!r}, 'device': 'cpu'}}) as pipe:\n"
        "    print(pipe({'data': array})['result'].tolist() == array.tolist())\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert ran.stdout == "True\n", ran.stderr


def test_what_the_core_makes_is_taken(run):
    result = run("S[ContiguousTensor,GpuTensor]", data=np.ones((2, 2)).T)["result"]
    assert torch.equal(result, torch.ones(2, 2, dtype=torch.float64))


def test_a_result_of_cpu_tensor_converts_to_numpy():
    with hami.pipe("CpuTensor") as pipe:
        result = pipe({"data": [torch.arange(3)]})["result"]
    assert hami.to_numpy(result[0]).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("backend", "request_keys", "text"),
    [
        (
            "GpuTensor",
            {"data": "text"},
            "GpuTensor takes a torch tensor or an object with DLPack, for example a NumPy array; got str",
        ),
        (
            "CpuTensor",
            {"data": None},
            "CpuTensor takes a torch tensor or an object with DLPack, for example a NumPy array; got NoneType",
        ),
    ],
)
def test_data_that_does_not_fit_is_rejected(backend, request_keys, text):
    config = {"backend": backend, "max": 2} | ({} if backend == "CpuTensor" else {"device": "cpu"})
    with hami.pipe(config) as pipe, pytest.raises(hami.Error) as raised:
        pipe(request_keys)
    assert message(raised) == text


def test_a_dlpack_struct_without_a_shape_is_a_data_type_error():
    """torch would read the shape at address 0."""

    class WithoutShape:
        def __dlpack__(self, **_):
            capsule = np.zeros((2, 2), np.float32).__dlpack__()
            address = ctypes.pythonapi.PyCapsule_GetPointer
            address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            ctypes.memset(address(capsule, b"dltensor") + 24, 0, 8)
            return capsule

        def __dlpack_device__(self):
            return (1, 0)

    with hami.pipe("CpuTensor") as pipe, pytest.raises(hami.DataTypeError) as error:
        pipe({"data": WithoutShape()})
    assert (
        str(error.value)
        .splitlines()[0]
        .endswith("CpuTensor: torch cannot read this WithoutShape: a DLPack tensor without a shape")
    )


NUMBERS = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


def test_memory_of_a_device_is_not_asked_for_a_buffer(monkeypatch):
    """It has none, and the exception for each row costs more than the conversion."""

    class OnDevice:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    asked = []
    monkeypatch.setattr(_tensor, "memoryview", asked.append, raising=False)
    assert not _tensor._needs_copy(OnDevice())
    assert asked == []
