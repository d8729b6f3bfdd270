"""Values on their way to a child and back."""

from __future__ import annotations

import threading

import hami
import numpy as np
import pytest
from process_backends import Point
from together import run_forked

MB = 1 << 20
VALUES = {
    "none": None,
    "bools": [True, False],
    "numbers": (1, -1.5, 1 << 80, 2j, float("inf")),
    "texts": ["", "ü€", "\ud800", "x" * 100_000],
    "bytes": [b"", b"\0\xff", b"y" * MB * 2],
    "nested": {"a": [1, {"b": (2, [3])}], 4: {5.5: None}, ("k",): {1, 2}},
    "objects": [Point(3), {"p": Point(4)}],
    "dtype": np.dtype("float32"),
}
ARRAYS = {
    "small": np.arange(6, dtype=np.int16).reshape(2, 3),
    "empty": np.zeros((0, 3), np.float32),
    "scalar array": np.array(7.5),
    "transposed": np.arange(12).reshape(3, 4).T,
    "large": np.arange(MB, dtype=np.float64),
    "strided": np.arange(4 * MB, dtype=np.uint8)[::2],
    "text": np.array(["a", "béc"]),
    "times": np.array(["2020-01-01"], "datetime64[ns]"),
    "big endian": np.arange(3, dtype=">i4"),
    "objects": np.array([{"a": 1}, None], dtype=object),
    "records": np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_comes_back_as_it_was(act, name):
    result = act("echo", VALUES[name])
    assert result == VALUES[name]
    assert type(result) is type(VALUES[name])


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_comes_back_as_it_was(act, name):
    result = act("echo", {"deep": [ARRAYS[name]]})["deep"][0]
    np.testing.assert_array_equal(result, ARRAYS[name])
    assert (result.dtype, result.shape, type(result)) == (ARRAYS[name].dtype, ARRAYS[name].shape, np.ndarray)
    if result.size:
        assert result.flags.writeable


def test_a_numpy_number_and_a_tensor_keep_their_types(act):
    number = act("echo", np.float32(1.5))
    assert (type(number), number) == (np.float32, 1.5)
    with hami.pipe("SoftmaxTensor") as pipe:
        tensor = pipe({"data": np.zeros((1, 4))})["result"]
    result = act("echo", tensor)
    assert type(result) is hami.Tensor
    assert result.tolist() == tensor.tolist()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a process with threads forks
def test_a_tensor_comes_back_in_a_process_that_forked_after_the_first(act):
    with hami.pipe("SoftmaxTensor") as pipe:
        tensor = pipe({"data": np.zeros((1, 4))})["result"]

    def in_a_forked_process() -> None:
        with hami.pipe("Process[Act]") as pipe:
            assert pipe({"data": ("echo", tensor)})["result"].tolist() == tensor.tolist()

    assert act("echo", tensor).tolist() == tensor.tolist()
    run_forked(in_a_forked_process)


def test_torch_tensors_keep_their_types(act):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for tensor in (torch.arange(6.0).reshape(2, 3), torch.ones(2 * MB, dtype=torch.bfloat16)):
        result = act("echo", tensor)
        assert result.dtype == tensor.dtype
        assert torch.equal(result, tensor)


def test_the_child_reads_a_large_array_in_place_and_may_write_to_it(act):
    assert act("array_facts", np.ones(MB)) == (False, True, float(MB))


def test_a_block_is_not_used_again_while_the_child_keeps_a_view_of_it(act):
    act("keep", np.full(MB, 2.0))
    for value in range(4):
        act("echo", np.full(MB, float(value)))
    assert act("kept_sum") == 2.0 * MB


def test_results_that_the_caller_keeps_are_not_overwritten(act):
    kept = [act("full", MB, float(value)) for value in range(6)]
    assert [(array[0], array[-1]) for array in kept] == [(float(value), float(value)) for value in range(6)]


def test_only_the_keys_that_the_child_sets_come_back(shared):
    request = {"data": ("echo", 1), "other": np.ones(3)}
    other = request["other"]
    shared(request)
    assert request["other"] is other
    assert sorted(request) == ["data", "other", "result"]


def test_a_value_that_cannot_be_sent_is_named_and_fails_alone(shared):
    requests = [{"data": ("echo", 1)}, {"data": ("echo", 2), "guard": {"deep": threading.Lock()}}]
    with pytest.raises(hami.BatchError) as raised:
        shared(requests)
    ((index, error),) = raised.value.errors
    assert index == 1
    assert type(error) is hami.DataTypeError
    assert 'guard["deep"] of a request to Act(' in str(error)
    assert "_thread.lock" in str(error)
    assert requests[0]["result"] == 1


def test_a_result_that_cannot_be_sent_is_named(act):
    with pytest.raises(hami.DataTypeError, match=r'"result" of the answer of Act\(.*_thread\.lock has no compact form'):
        act("unsendable", "alone")
    with pytest.raises(hami.DataTypeError, match=r'^result\["boxes"\]\[3\]\[7\] of the answer of Act.*_thread'):
        act("unsendable", "deep")
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(hami.DataTypeError, match="nested too deep, or contains itself"):
        act("echo", loop)
