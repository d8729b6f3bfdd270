"""GpuTensor, CpuTensor, CatTensor, SplitTensor, FixTensor and ContiguousTensor on the CPU."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import hami
import numpy as np
import pytest
import torch
from helpers import message

NUMPY = tuple(map(int, np.__version__.split(".")[:2]))
CAT_SPLIT = "CatSplit[hami-torch::CatTensor,TorchModel,hami-torch::SplitTensor]"


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


def test_a_batch_is_concatenated_run_once_and_split_again(pipe):
    concatenated = pipe(CAT_SPLIT, factory="helpers:CountsRows", batched=True, max=4, batching="greedy")
    requests = concatenated([{"data": torch.zeros(1, 2)}, {"data": torch.zeros(2, 2), "request_size": 2}])
    assert [request["result"].tolist() for request in requests] == [[[3, 3]], [[3, 3], [3, 3]]]


def test_lists_and_dicts_are_concatenated_part_by_part(pipe):
    concatenated = pipe("hami-torch::CatTensor", max=4, batching="greedy")
    requests = [
        {"data": {"a": torch.zeros(1, 2), "b": torch.ones(1)}},
        {"data": {"a": torch.zeros(2, 2), "b": torch.ones(2)}, "request_size": 2},
    ]
    concatenated(requests)
    for request in requests:
        assert {name: list(part.shape) for name, part in request["result"].items()} == {"a": [3, 2], "b": [3]}
    requests = concatenated([{"data": [torch.zeros(1, 2), torch.ones(1)]} for _ in range(2)])
    assert [list(part.shape) for part in requests[0]["result"]] == [[2, 2], [2]]


def test_a_part_with_the_wrong_number_of_rows_is_named(run):
    data = {"a": torch.zeros(1), "b": torch.zeros(2)}
    with pytest.raises(hami.RequestError) as raised:
        run("hami-torch::CatTensor", data=data, request_size=1)
    assert message(raised) == (
        'CatTensor: "b" is float32 [2], but request_size is 1; axis 0 must have request_size rows'
    )
    with pytest.raises(hami.RequestError) as raised:
        run("hami-torch::CatTensor", data=data)
    assert message(raised) == (
        'CatTensor: "a" is float32 [1], "b" is float32 [2]; all tensors of a request must have the same number of rows '
        "along axis 0"
    )


def test_data_of_different_structure_is_not_concatenated(pipe):
    fails = pipe("hami-torch::CatTensor", max=4, batching="greedy", on_batch_error="fail")
    with pytest.raises(hami.BatchError) as raised:
        fails([{"data": {"a": torch.zeros(1)}}, {"data": [torch.zeros(1)]}])
    assert str(raised.value.errors[0][1]).splitlines()[0] == (
        "CatTensor cannot concatenate [a] and [data[0]] in one batch; all requests must have the same list or dict keys"
    )


def test_stack_adds_the_batch_axis_and_removes_it(pipe):
    stacked = pipe(CAT_SPLIT, factory="helpers:Double", batched=True, max=4, batching="greedy", stack=True)
    requests = stacked([{"data": torch.full((2,), float(number))} for number in range(3)])
    assert [request["result"].tolist() for request in requests] == [[0, 0], [2, 2], [4, 4]]


@pytest.mark.parametrize(
    ("backend", "request_keys", "text"),
    [
        (
            "hami-torch::CatTensor",
            {"data": torch.zeros(2, 2), "request_size": 1},
            'CatTensor: "data" is float32 [2, 2], but request_size is 1; axis 0 must have request_size rows',
        ),
        (
            "hami-torch::CatTensor(stack=true)",
            {"data": torch.zeros(2), "request_size": 2},
            "CatTensor(stack=true) takes requests of one item; request_size is 2",
        ),
        (
            "hami-torch::SplitTensor",
            {"data": torch.zeros(2, 2)},
            "SplitTensor cannot split float32 [2, 2]: the requests of this batch have 1 rows in total, and axis 0 must "
            "have as many",
        ),
        (
            "hami-torch::FixTensor(shape='-1,3')",
            {"data": torch.zeros(2, 2)},
            "FixTensor takes tensors of shape [-1, 3], got float32 [2, 2]",
        ),
        (
            "hami-torch::FixTensor(dtype=uint8)",
            {"data": torch.zeros(2)},
            "FixTensor: uint8 cannot represent every value of float32 [2]",
        ),
        (
            "hami-torch::FixTensor(dtype=float16)",
            {"data": torch.tensor([70000])},
            "FixTensor: float16 cannot represent every value of int64 [1]",
        ),
        (
            "hami-torch::SplitTensor(stack=true)",
            {"data": torch.arange(2.0), "request_size": 2},
            "SplitTensor(stack=true) takes requests of one item; request_size is 2",
        ),
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


def test_requests_that_do_not_fit_together_run_alone(pipe):
    requests = [{"data": torch.zeros(1, 2)}, {"data": torch.zeros(1, 3)}]
    pipe(CAT_SPLIT, factory="helpers:CountsRows", batched=True, max=4, batching="greedy")(requests)
    assert [request["result"].tolist() for request in requests] == [[[1, 1]], [[1, 1, 1]]]


def test_tensors_of_the_shape_are_cast_to_the_dtype(run):
    params = {"shape": "-1,2", "dtype": "float32"}
    assert (
        run("hami-torch::FixTensor", params, data=torch.ones(3, 2, dtype=torch.uint8))["result"].dtype == torch.float32
    )


NUMBERS = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("wanted", [*NUMBERS, "uint16"])
def test_casts_are_rejected_exactly_where_the_core_rejects_them(wanted):
    def accepted(config):
        with hami.pipe({"dtype": wanted, **config}) as pipe:
            calls = {given: pipe.submit({"data": torch.ones(1).to(getattr(torch, given))}) for given in NUMBERS}
            errors = {given: call.exception() for given, call in calls.items()}
        assert all(error is None or isinstance(error, hami.DataTypeError) for error in errors.values())
        return [given for given, error in errors.items() if error is None]

    assert accepted({"backend": "hami-torch::FixTensor", "device": "cpu"}) == accepted({"backend": "FixTensor"})


def test_an_unknown_dtype_is_rejected(pipe):
    with pytest.raises(hami.ConfigError) as raised:
        pipe("hami-torch::FixTensor", dtype="float33")
    assert message(raised) == 'FixTensor: "dtype" must be a dtype of torch, for example float32 or uint8; got "float33"'


def test_only_tensors_that_are_not_contiguous_are_copied(run):
    transposed = torch.arange(6).reshape(2, 3).T
    result = run("hami-torch::ContiguousTensor", data={"a": transposed, "b": transposed.T})["result"]
    assert result["a"].is_contiguous()
    assert torch.equal(result["a"], transposed)
    assert result["b"].data_ptr() == transposed.data_ptr()
