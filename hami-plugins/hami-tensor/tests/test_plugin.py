"""The package as a plugin: its names, their traits, and what it needs."""

from __future__ import annotations

from importlib.metadata import entry_points

import hami
import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed")

NAMES = {
    "ArgMaxTensor",
    "CatTensor",
    "ContiguousTensor",
    "FixTensor",
    "L2Normalize",
    "NmsTensor",
    "Pad",
    "PoolTensor",
    "RestoreBoxes",
    "SoftNmsTensor",
    "SoftmaxTensor",
    "SplitTensor",
    "TopKTensor",
}


def test_every_declared_name_is_a_backend_of_the_library():
    assert {point.name for point in entry_points(group="hami.backends") if point.value == "hami_tensor.plugin"} == NAMES
    found = hami.backends(load=True)
    assert {name for name in found if found[name].owner == "hami-tensor"} == NAMES | {"TensorFunctions"}
    assert {(found[name].thread, found[name].lightweight, found[name].range) for name in NAMES - {"Pad"}} == {
        ("concurrent", True, "")
    }
    assert all((found[name].doc or "").endswith(".") for name in NAMES)


def test_rows_never_enter_the_dict_of_the_caller():
    with hami.pipe({"backend": "S[CatTensor,ContiguousTensor]", "max": 2, "batching": "greedy"}) as pipe:
        first, second = pipe([{"data": np.zeros((3, 1))}, {"data": np.zeros((1, 1))}])
    assert first.keys() == second.keys() == {"data", "result"}


def test_a_batch_with_a_request_of_another_structure_runs_request_by_request():
    with hami.pipe({"backend": "CatTensor", "max": 2, "batching": "greedy", "on_batch_error": "fail"}) as pipe:
        requests = [{"data": {"a": np.zeros(1)}}, {"data": [np.zeros(1)]}]
        with pytest.raises(hami.BatchError) as raised:
            pipe(requests)
    assert str(raised.value.errors[0][1]).splitlines()[0] == (
        "CatTensor cannot concatenate a dict of tensors (a) and a list of 1 tensor in one batch"
    )
