"""batch_invariant, and hami check --invariance: numbers of rows for which a row is equal bit for bit."""

from __future__ import annotations

import json

import hami
import numpy as np
import pytest
from conftest import save
from hami.__main__ import main
from onnx import TensorProto, helper

from hami_onnx import _invariance

PORT = (TensorProto.FLOAT, ["n", 2])


def plus_the_number_of_rows(folder):
    """A model whose rows depend on how many run together."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], end=1),
        helper.make_node("Cast", ["shape"], ["rows"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "rows"], ["y"]),
    ]
    return save(folder / "counts.onnx", nodes, {"x": PORT}, {"y": PORT})


def results(pipe, count):
    requests = [{"data": np.float32([[i, -i]])} for i in range(count)]
    pipe(requests)
    return [hami.to_numpy(request["result"]).tolist() for request in requests]


def test_a_row_is_as_alone_where_no_other_number_of_rows_gives_the_same_bits(pipe, tmp_path):
    path = str(plus_the_number_of_rows(tmp_path))
    assert results(pipe(model=path, batched=True, max=4, batching="greedy"), 4) == [[[i + 4, 4 - i]] for i in range(4)]
    alone = pipe(model=path, batched=True, batch_invariant=True)
    assert results(alone, 4) == [[[i + 1, 1 - i]] for i in range(4)]
    assert any("no other number of rows gives each row the same bits" in sentence for sentence in alone.remarks())


def test_rows_run_alone_or_in_the_largest_batch_with_the_same_bits(pipe, models, monkeypatch):
    path = str(models.double(width=2))
    joined = pipe(model=path, batch_invariant=True, batching="greedy")
    assert results(joined, 1) == [[[0, 0]]]
    assert results(joined, 5) == [[[2 * i, -2 * i]] for i in range(5)]
    assert joined.stats()["default"].counters["groups"] == 2
    three = {"data": np.float32([[1, 2], [3, 4], [5, 6]]), "request_size": 3}
    assert hami.to_numpy(joined(three)["result"]).tolist() == [[2, 4], [6, 8], [10, 12]]
    monkeypatch.setattr(_invariance, "compare_sizes", None)  # the finding is kept
    assert results(pipe(model=path, batch_invariant=True), 2) == [[[0, 0]], [[2, -2]]]


def test_a_fixed_number_of_rows_must_give_the_same_bits_at_each_place(pipe, models, tmp_path):
    assert results(pipe(model=str(models.double(rows=4, width=2)), batch_invariant=True), 2) == [[[0, 0]], [[2, -2]]]
    fixed = (TensorProto.FLOAT, [2, 2])
    node = helper.make_node("CumSum", ["x", "axis"], ["y"])
    path = save(tmp_path / "sums.onnx", [node], {"x": fixed}, {"y": fixed}, {"axis": np.array(0)})
    with pytest.raises(hami.ConfigError, match="the bits of a row depend on its place in the batch of 2 rows"):
        pipe(model=str(path), batched=True, batch_invariant=True)


@pytest.mark.parametrize("rows", [2, 8])
def test_check_invariance_prints_a_table(models, tmp_path, capsys, rows):
    assert main(["check", str(models.double(width=2)), "--invariance"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["default:", str(rows), "yes", "none"] for line in lines)


def test_check_invariance_without_a_model_says_so(capsys):
    assert main(["check", "Identity", "--invariance"]) == 0
    assert "no node runs a model whose rows a plugin can compare" in capsys.readouterr().out


def test_the_price_of_equal_bits_is_measured_beside_the_model_without_them(models, tmp_path, capsys):
    pytest.importorskip("hami_tools", reason="needs the command hami bench")
    np.save(tmp_path / "x.npy", np.float32([[1, 2]]))
    pipelines = {"joined.toml": "", "invariant.toml": "batch_invariant = true"}
    for name, key in pipelines.items():
        (tmp_path / name).write_text(f"[m]\nbackend = 'OnnxTensor'\nmodel = '{models.double(width=2)}'\n{key}\n")
    one, other = (str(tmp_path / name) for name in pipelines)
    times = ("--seconds", "0.05", "--rounds", "2", "--clients", "4", "--json")
    assert main(["bench", one, "--input", str(tmp_path / "x.npy"), "--compare", other, *times]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["compared_with"], found["difference"]["equal"], found["difference"]["largest"]) == (other, 1, 0)
    (price,) = found["ratios"]
    assert (price["load"], price["rounds"]) == ("clients 4", 2)
    assert 0 < price["low"] <= price["ratio"] <= price["high"]
