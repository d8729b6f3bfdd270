"""Requests that run together get what they would get alone: rows are proven, tested, declared, and watched."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import hami
import models
import numpy as np
import pytest
from fake_tensorrt import serialized, tensor
from hami_model_check import joining, row_watch
from onnx import helper

from hami_trt import _joining, onnx2tensorrt, plugin
from hami_trt._cache import StoredEngine
from hami_trt._prepare import PreparedEngine

FIXED = {
    "profiles": [{"x": [(4, 2)] * 3}],
    "tensors": {name: tensor(mode, shape=(4, 2)) for name, mode in (("x", "INPUT"), ("y", "OUTPUT"))},
}


def rows(*values: float) -> np.ndarray:
    return np.array([[value, 3 * value] for value in values], np.float32)


def together(pipe, *data: np.ndarray) -> list[list]:
    """Send requests as one batch; return their results."""
    return [request["result"].tolist() for request in pipe([{"data": each} for each in data])]


def test_requests_run_together_after_a_test_of_the_rows(pipe, engine, fake):
    doubled = pipe("TensorrtTensor", model=engine(), batching="greedy")
    tested = fake.runs
    assert tested > 1
    assert together(doubled, rows(1), rows(2), rows(3)) == [[[2, 6]], [[4, 12]], [[6, 18]]]
    assert fake.runs == tested + 1
    assert not any("one by one" in text for text in doubled._pipe.remarks())


@pytest.mark.parametrize("instances", [1, 3])
def test_rows_that_influence_each_other_run_one_by_one(pipe, engine, instances):
    model = engine(program="centered")
    centered = pipe("SyncTensor[TensorrtTensor]", model=model, batching="greedy", instance_num=instances)
    assert together(centered, rows(1), rows(5)) == [[[0, 0]], [[0, 0]]]
    assert together(centered, rows(1, 3), rows(5)) == [[[-1, -3], [1, 3]], [[0, 0]]]
    with ThreadPoolExecutor(8) as callers:
        results = list(callers.map(lambda value: centered({"data": rows(value)})["result"].tolist(), range(60)))
    assert results == [[[0, 0]]] * 60
    (sentence,) = {text for text in centered._pipe.remarks() if "one by one" in text}
    assert "rows influence each other" in sentence


def test_a_test_is_kept_with_the_file(pipe, engine, fake):
    path = engine(program="centered")
    pipe("TensorrtTensor", model=path)
    tested = fake.runs
    pipe("TensorrtTensor", model=path)
    copy = path.with_name("copy.trt")
    copy.write_bytes(path.read_bytes())
    pipe("TensorrtTensor", model=copy)
    assert fake.runs == tested
    pipe("TensorrtTensor", model=engine("other.trt", program="double"))
    assert fake.runs > tested


def test_the_user_can_override_a_finding_and_is_warned_once(pipe, engine, caplog, monkeypatch):
    monkeypatch.setattr(joining, "_warned", set())
    path = engine(program="centered")
    pipe("TensorrtTensor", model=path)
    with caplog.at_level(logging.WARNING, "hami.rows"):
        for _ in range(2):
            centered = pipe("TensorrtTensor", model=path, batching="greedy", batched=True)
            assert together(centered, rows(1), rows(3)) == [[[-1, -3]], [[1, 3]]]
    assert len(caplog.messages) == 1
    assert "batched = true joins the requests of" in caplog.text
    alone = pipe("TensorrtTensor", model=engine("double.trt"), batching="greedy", batched=False)
    assert together(alone, rows(1), rows(3)) == [[[2, 6]], [[6, 18]]]


@pytest.mark.parametrize("instances", [1, 3])
def test_the_watch_ends_the_joining_and_repairs_the_batch_that_it_saw(pipe, engine, caplog, monkeypatch, instances):
    defaults = {"computed_in": "", "every": 1, "stops": True}
    monkeypatch.setattr(row_watch.RowWatch.__init__, "__kwdefaults__", defaults)
    model = engine(program="centered above 1e6")
    centered = pipe("TensorrtTensor", model=model, batching="greedy", instance_num=instances)
    assert together(centered, rows(1), rows(2)) == [[[1, 3]], [[2, 6]]]
    with caplog.at_level(logging.WARNING, "hami.rows"):
        assert together(centered, rows(1), rows(4e6)) == [[[1, 3]], [[0, 0]]]
        assert together(centered, rows(1), rows(4e6)) == [[[1, 3]], [[0, 0]]]
    assert len(caplog.messages) == 1
    assert any("depend on their neighbours" in text for text in centered._pipe.remarks())
    (stats,) = centered._pipe.stats().values()
    assert stats.counters["watch_differences"] == 1


def test_an_engine_with_a_fixed_batch_is_tested_in_full_batches(pipe, engine):
    doubled = pipe("TensorrtTensor", model=engine(**FIXED), batching="greedy")
    assert together(doubled, *map(rows, range(4))) == [[[2 * value, 6 * value]] for value in range(4)]
    centered = pipe("TensorrtTensor", model=engine("centered.trt", **FIXED, program="centered"), batching="greedy")
    assert together(centered, rows(1, 2, 3, 6)) == [[[-2, -6], [-1, -3], [0, 0], [3, 9]]]
    with pytest.raises(hami.BatchError, match="expects float32"):
        centered([{"data": rows(value)} for value in range(4)])


def test_types_that_numpy_lacks_are_not_tested(pipe, engine):
    ports = {"x": tensor("INPUT", "BF16"), "y": tensor("OUTPUT", "BF16")}
    opened = pipe("TensorrtTensor", model=engine(tensors=ports))
    assert any("NumPy has no type for the values of x, y" in text for text in opened._pipe.remarks())


@pytest.fixture
def from_onnx(tmp_path, fake, pipe, monkeypatch):
    """from_onnx(node, …) opens the model x [N, 2] -> y of an ONNX node; the fake runs its program."""

    def open_model(node, program, outputs=("N", 2), **config):
        path = models.save(tmp_path / "model.onnx", [node], {"x": ["N", 2]}, {"y": list(outputs)}, domain="acme")
        stored = StoredEngine(serialized(program=program), None, {})
        monkeypatch.setattr(onnx2tensorrt, "make_recipe", lambda options, gpu: {"program": program})
        monkeypatch.setattr(onnx2tensorrt, "prepare_engine", lambda *_: PreparedEngine(stored, None, True))
        return pipe("TensorrtTensor", model=path, max=4, batching="greedy", **config)

    return open_model


def test_an_onnx_model_is_proven_and_not_tested(from_onnx, fake):
    doubled = from_onnx(helper.make_node("Add", ["x", "x"], ["y"]), "double")
    assert fake.runs == 0
    assert together(doubled, rows(1), rows(2)) == [[[2, 6]], [[4, 12]]]
    assert fake.runs == 1


def test_a_proof_that_rows_mix_needs_no_test_and_names_the_operator(from_onnx, fake):
    mixing = from_onnx(helper.make_node("Softmax", ["x"], ["y"], axis=0, name="over_rows"), "centered")
    assert fake.runs == 0
    assert together(mixing, rows(1), rows(2)) == [[[0, 0]], [[0, 0]]]
    assert any('Softmax (opset 17, node "over_rows")' in text for text in mixing._pipe.remarks())


def test_an_operator_without_a_rule_is_tested(from_onnx, fake):
    mixing = from_onnx(helper.make_node("Mystery", ["x"], ["y"], domain="acme"), "centered")
    assert fake.runs > 1
    assert together(mixing, rows(1), rows(2)) == [[[0, 0]], [[0, 0]]]


def test_rows_along_another_axis_of_an_output_are_not_split(tmp_path):
    path = models.save(
        tmp_path / "model.onnx", [helper.make_node("Transpose", ["x"], ["y"])], {"x": ["N", 2]}, {"y": [2, "N"]}
    )
    found = _joining.along_axis_0(joining.decide_joining(path, backend="TensorrtTensor", engine="test"))
    assert not found.joins
    assert "the rows of y are not along axis 0" in found.reason


def test_show_prints_the_finding(engine):
    facts = plugin.hami_show_file(str(engine(program="centered")))
    assert facts["inputs"] == ["x  float32 [?, 2]"]
    assert facts["profiles"] == ["[1..4, 2]"]
    assert (facts["requests"], facts["rows"], facts["known by"]) == ("one by one", "mixes", "test")
    assert plugin.hami_show_file("model.onnx") is None


def test_check_prints_the_finding_without_an_engine(tmp_path):
    path = models.double(tmp_path / "double.onnx")
    (text,) = plugin.hami_findings("Onnx2Tensorrt", {"model": str(path)})
    assert text.startswith('"double.onnx": requests are joined: the graph proves that rows are independent')
    (text,) = plugin.hami_findings("LoadTensorrtEngine", {"model": str(path)})
    assert text.endswith("is tested when the engine is opened")
    assert plugin.hami_findings("TensorrtInferTensor", {}) == []
