"""GpuTensor, CpuTensor, CatTensor, SplitTensor, FixTensor and ContiguousTensor, all on the CPU."""

from __future__ import annotations

import subprocess
import sys

import hami
import numpy as np
import pytest
import torch
from helpers import message

NUMPY = tuple(map(int, np.__version__.split(".")[:2]))
CAT_SPLIT = "CatSplit[hami-torch::CatTensor,TorchModel,hami-torch::SplitTensor]"


def test_arrays_and_tensors_become_torch_tensors_in_their_form(run):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = run("GpuTensor", data={"a": array, "b": torch.ones(1)})["result"]
    assert torch.equal(result["a"], torch.from_numpy(array))
    assert torch.equal(result["b"], torch.ones(1))
    assert [part.shape for part in run("GpuTensor", data=[array, array])["result"]] == [(2, 3), (2, 3)]


THROUGH_THE_CORE = pytest.param(  # as a hami.Tensor
    "S[FixTensor,GpuTensor]",
    marks=pytest.mark.skipif(NUMPY < (2, 1), reason="NumPy before 2.1 does not show read-only arrays to others"),
)


@pytest.mark.parametrize("backend", ["GpuTensor", THROUGH_THE_CORE])
def test_an_array_that_is_read_only_is_copied(run, backend):
    array = np.ones(3)
    array.flags.writeable = False
    result = run(backend, data=array)["result"]
    result += 1
    assert array.tolist() == [1, 1, 1]


@pytest.mark.parametrize("backend", ["GpuTensor", "S[FixTensor,GpuTensor]"])
def test_an_array_that_runs_backwards_is_copied(backend):
    """In a process of its own: torch ends the one in which it is given such an array."""
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


def test_off_the_device_a_tensor_can_be_an_array():
    with hami.pipe("CpuTensor") as pipe:
        result = pipe({"data": [torch.arange(3)]})["result"]
    assert hami.to_numpy(result[0]).tolist() == [0, 1, 2]


def test_gathered_once_run_once_and_given_back_row_by_row(pipe):
    gathered = pipe(CAT_SPLIT, factory="helpers:CountsRows", max=4, batching="max")
    requests = gathered([{"data": torch.zeros(1, 2)}, {"data": torch.zeros(2, 2), "request_size": 2}])
    assert [request["result"].tolist() for request in requests] == [[[3, 3]], [[3, 3], [3, 3]]]


def test_lists_and_dicts_are_gathered_part_by_part(pipe):
    gathered = pipe("hami-torch::CatTensor", max=4, batching="max")
    requests = [
        {"data": {"a": torch.zeros(1, 2), "b": torch.ones(1)}},
        {"data": {"a": torch.zeros(2, 2), "b": torch.ones(2)}, "request_size": 2},
    ]
    gathered(requests)
    for request in requests:
        assert {name: list(part.shape) for name, part in request["result"].items()} == {"a": [3, 2], "b": [3]}
    requests = gathered([{"data": [torch.zeros(1, 2), torch.ones(1)]} for _ in range(2)])
    assert [list(part.shape) for part in requests[0]["result"]] == [[2, 2], [2]]


def test_parts_that_have_other_rows_are_named(run):
    with pytest.raises(hami.RequestError) as raised:
        run("hami-torch::CatTensor", data={"a": torch.zeros(1), "b": torch.zeros(2)})
    assert message(raised) == (
        'CatTensor: "b" is float32 [2], and request_size is 1: axis 0 has as many rows as request_size'
    )


def test_data_of_different_forms_is_not_gathered(pipe):
    fails = pipe("hami-torch::CatTensor", max=4, batching="max", on_batch_error="fail")
    with pytest.raises(hami.BatchError) as raised:
        fails([{"data": {"a": torch.zeros(1)}}, {"data": [torch.zeros(1)]}])
    assert str(raised.value.errors[0][1]).splitlines()[0] == (
        "CatTensor cannot gather [a] and [data[0]] in one batch; they differ in form"
    )


def test_with_stack_the_axis_is_made_and_taken_away(pipe):
    stacked = pipe(CAT_SPLIT, factory="helpers:Double", max=4, batching="max", stack=True)
    requests = stacked([{"data": torch.full((2,), float(number))} for number in range(3)])
    assert [request["result"].tolist() for request in requests] == [[0, 0], [2, 2], [4, 4]]


@pytest.mark.parametrize(
    ("backend", "request_keys", "text"),
    [
        (
            "hami-torch::CatTensor",
            {"data": torch.zeros(2, 2)},
            'CatTensor: "data" is float32 [2, 2], and request_size is 1: axis 0 has as many rows as request_size',
        ),
        (
            "hami-torch::CatTensor(stack=true)",
            {"data": torch.zeros(2), "request_size": 2},
            "CatTensor(stack=true) takes requests of one item; request_size is 2",
        ),
        (
            "hami-torch::SplitTensor",
            {"data": torch.zeros(2, 2)},
            "SplitTensor: float32 [2, 2] cannot be split: the requests of this batch count 1 rows",
        ),
        (
            "hami-torch::FixTensor(shape='-1,3')",
            {"data": torch.zeros(2, 2)},
            "FixTensor takes [-1, 3], got float32 [2, 2]",
        ),
        (
            "hami-torch::FixTensor(dtype=uint8)",
            {"data": torch.zeros(2)},
            "FixTensor: uint8 cannot hold every value of float32 [2]",
        ),
        (
            "hami-torch::FixTensor(dtype=float16)",
            {"data": torch.tensor([70000])},
            "FixTensor: float16 cannot hold every value of int64 [1]",
        ),
        (
            "hami-torch::SplitTensor(stack=true)",
            {"data": torch.arange(2.0), "request_size": 2},
            "SplitTensor(stack=true) takes requests of one item; request_size is 2",
        ),
        ("GpuTensor", {"data": "text"}, "GpuTensor takes a tensor (torch's, or anything with DLPack), got str"),
        ("CpuTensor", {"data": None}, "CpuTensor takes a tensor (torch's, or anything with DLPack), got NoneType"),
    ],
)
def test_what_does_not_fit_is_refused(backend, request_keys, text):
    config = {"backend": backend, "max": 2} | ({} if backend == "CpuTensor" else {"device": "cpu"})
    with hami.pipe(config) as pipe, pytest.raises(hami.Error) as raised:
        pipe(request_keys)
    assert message(raised) == text


def test_requests_that_do_not_fit_together_run_alone(pipe):
    requests = [{"data": torch.zeros(1, 2)}, {"data": torch.zeros(1, 3)}]
    pipe(CAT_SPLIT, factory="helpers:CountsRows", max=4, batching="max")(requests)
    assert [request["result"].tolist() for request in requests] == [[[1, 1]], [[1, 1, 1]]]


def test_one_shape_and_dtype_pass_and_are_cast(run):
    params = {"shape": "-1,2", "dtype": "float32"}
    assert (
        run("hami-torch::FixTensor", params, data=torch.ones(3, 2, dtype=torch.uint8))["result"].dtype == torch.float32
    )


NUMBERS = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("wanted", [*NUMBERS, "uint16"])
def test_a_cast_is_refused_where_the_core_refuses_it(wanted):
    def taken(config):
        with hami.pipe({"dtype": wanted, **config}) as pipe:
            calls = {given: pipe.submit({"data": torch.ones(1).to(getattr(torch, given))}) for given in NUMBERS}
            errors = {given: call.exception() for given, call in calls.items()}
        assert all(error is None or isinstance(error, hami.DataTypeError) for error in errors.values())
        return [given for given, error in errors.items() if error is None]

    assert taken({"backend": "hami-torch::FixTensor", "device": "cpu"}) == taken({"backend": "FixTensor"})


def test_a_dtype_that_torch_does_not_have_is_refused(pipe):
    with pytest.raises(hami.ConfigError) as raised:
        pipe("hami-torch::FixTensor", dtype="float33")
    assert message(raised) == 'FixTensor: torch has no dtype "float33"; there are float32, float16, uint8, …'


def test_a_turned_tensor_is_laid_out_anew_and_others_pass(run):
    turned = torch.arange(6).reshape(2, 3).T
    result = run("hami-torch::ContiguousTensor", data={"a": turned, "b": turned.T})["result"]
    assert result["a"].is_contiguous()
    assert torch.equal(result["a"], turned)
    assert result["b"].data_ptr() == turned.data_ptr()
