"""Models whose exporter has fixed one row: they run with any number where rows alone and together are equal."""

from __future__ import annotations

import hami
import hami.config
import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import save
from hami.__main__ import main
from onnx import TensorProto, helper

from hami_onnx import _free_axis

VERSION = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
FLOAT = TensorProto.FLOAT
WEIGHTS = {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}


def layer(folder, extra=(), output=(1, 3), name="layer.onnx", declared=()):
    """y = x @ w + the nodes `extra`; x has the fixed shape [1, 2]."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), *(extra or [helper.make_node("Identity", ["h"], ["y"])])]
    path = save(folder / name, nodes, {"x": (FLOAT, [1, 2])}, {"y": (FLOAT, list(output))}, WEIGHTS)
    model = onnx.load(path)
    model.graph.value_info.extend(helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in declared)
    onnx.save(model, path)
    return str(path)


def answers(pipe, count):
    requests = [{"data": np.float32([[i, 1 - i]])} for i in range(count)]
    pipe(requests)
    return [hami.to_numpy(request["result"]) for request in requests]


def expected(count):
    return [np.float32([[i, 1 - i]]) @ WEIGHTS["w"] for i in range(count)]


@pytest.mark.parametrize("external", [False, True], ids=["weights inside", "weights beside"])
def test_requests_of_a_model_with_one_fixed_row_run_together(pipe, tmp_path, external):
    path = layer(tmp_path, declared=[("h", [1, 3])])
    if external:
        if VERSION < (1, 21):
            pytest.skip("this onnxruntime reads weights beside a model only for the path of the model")
        onnx.save(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    content = (tmp_path / "layer.onnx").read_bytes()
    running = pipe(model=path, max=8, batching="greedy")
    np.testing.assert_allclose(answers(running, 8), expected(8), rtol=1e-5)
    assert running.stats()["default"].counters["groups"] == 1
    assert running.remarks() == []
    assert hami.to_numpy(running({"data": np.float32([1, 0])})["result"]).shape == (3,)
    assert (tmp_path / "layer.onnx").read_bytes() == content


def test_a_length_that_the_model_computes_with_stays_fixed(pipe, tmp_path):
    """The shape of Reshape is one row, so that two rows become one: the cure is to export the model otherwise."""
    nodes = [helper.make_node("Reshape", ["h", "shape"], ["y"])]
    constants = {**WEIGHTS, "shape": np.array([1, 3])}
    all_nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), *nodes]
    ports = {"x": (FLOAT, [1, 2])}, {"y": (FLOAT, [1, 3])}
    running = pipe(model=str(save(tmp_path / "reshape.onnx", all_nodes, *ports, constants)))
    np.testing.assert_allclose(answers(running, 3), expected(3), rtol=1e-5)
    assert any('runs rows one by one: input "x" has the fixed shape' in remark for remark in running.remarks())


def test_rows_that_would_influence_each_other_stay_alone(pipe, tmp_path):
    """A mean over one row is the row; over several it mixes callers."""
    nodes = [
        helper.make_node("ReduceMean", ["h"], ["m"], axes=[0], keepdims=1),
        helper.make_node("Add", ["h", "m"], ["y"]),
    ]
    running = pipe(model=layer(tmp_path, nodes))
    np.testing.assert_allclose(answers(running, 3), [2 * each for each in expected(3)], rtol=1e-5)
    assert running.stats()["default"].counters["groups"] == 3


def test_the_finding_is_kept_and_shown(pipe, tmp_path, monkeypatch, capsys):
    path = layer(tmp_path)
    answers(pipe(model=path), 2)
    monkeypatch.setattr(_free_axis, "measure_along", None)  # it is not measured again
    copy = tmp_path / "copy.onnx"
    copy.write_bytes((tmp_path / "layer.onnx").read_bytes())
    for each in (path, str(copy)):
        assert main(["show", each]) == 0
        assert "the file fixes one row, and the session takes any number" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("operator", "shape"), [("Mul", []), ("MatMul", [3, 3])], ids=["a scalar", "an input of three rows"]
)
def test_an_input_that_all_rows_share_stays_as_it_is(pipe, tmp_path, operator, shape):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node(operator, ["h", "s"], ["y"])]
    ports = {"x": (FLOAT, [1, 2]), "s": (FLOAT, shape)}, {"y": (FLOAT, [1, 3])}
    path = str(save(tmp_path / "shared.onnx", nodes, *ports, WEIGHTS))
    running = pipe(model=path, batch_axes=["x=0", "s=none"])
    assert running.remarks() == []
    shared = np.full(shape, 2, np.float32)
    rows = np.float32([[1, 2], [3, 4]])
    found = hami.to_numpy(running({"data": {"x": rows, "s": shared}})["result"])
    combined = np.multiply if operator == "Mul" else np.matmul
    np.testing.assert_allclose(found, combined(rows @ WEIGHTS["w"], shared))


def test_one_row_is_compared_beside_an_input_that_all_rows_share(pipe, tmp_path, monkeypatch):
    """Its first axis is not that of the rows."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "s"], ["y"])]
    ports = {"x": (FLOAT, [1, 2]), "s": (FLOAT, [3, 3])}, {"y": (FLOAT, [1, 3])}
    path = str(save(tmp_path / "shared.onnx", nodes, *ports, {"w": 3 * WEIGHTS["w"]}))  # a file without a finding
    compared = []
    same_alone = _free_axis._same_alone

    def recorded(arrays, fixed, free, axes):
        run = fixed.run
        monkeypatch.setattr(fixed, "run", lambda given: compared.append(given) or run(given))
        return same_alone(arrays, fixed, free, axes)

    monkeypatch.setattr(_free_axis, "_same_alone", recorded)
    pipe(model=path, batch_axes=["x=0", "s=none"])
    assert compared


@pytest.mark.parametrize(("batched", "rows"), [(None, -1), (False, 1)])
def test_the_signature_says_whether_the_length_is_free(pipe, tmp_path, batched, rows):
    """Servers show it, and reject requests of another shape."""
    running = pipe(model=layer(tmp_path), batched=batched)
    signature = hami.config.signature(running.describe())
    assert [port["shape"] for port in (*signature["inputs"], *signature["outputs"])] == [[rows, 2], [rows, 3]]


def test_batched_false_leaves_the_length_as_it_is(pipe, tmp_path):
    running = pipe(model=layer(tmp_path), batched=False)
    answers(running, 3)
    assert running.stats()["default"].counters["groups"] == 3


def test_bits_can_be_kept_too(pipe, tmp_path):
    running = pipe(model=layer(tmp_path), batch_invariant=True, batching="greedy")
    alone = pipe(model=layer(tmp_path, name="other.onnx"), batched=False)
    assert [each.tolist() for each in answers(running, 5)] == [each.tolist() for each in answers(alone, 5)]
