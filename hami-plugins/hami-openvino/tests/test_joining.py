"""Requests are joined only if rows are independent: proven, tested, declared; and joined batches are watched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import hami
import numpy as np
import openvino
import pytest
from conftest import array, opset, save, values
from onnx import TensorProto, helper

RANDOM = np.random.default_rng(5)


def scaled(path, operator="ReduceL1", version=18, axis=1):
    """y = x / operator(x, axis)"""
    inputs, attributes = (["x", "axes"], {}) if version >= 18 else (["x"], {"axes": [axis]})
    nodes = [
        helper.make_node(operator, inputs, ["size"], keepdims=1, name="size", **attributes),
        helper.make_node("Div", ["x", "size"], ["y"]),
    ]
    ports = {"x": (TensorProto.FLOAT, ["n", 4])}, {"y": (TensorProto.FLOAT, ["n", 4])}
    return save(path, nodes, *ports, {"axes": np.array([axis])} if version >= 18 else {}, version)


def scaled_ir(path, axis):
    """y = x / max(|x|, axis), as an IR, of which no graph of ONNX exists."""
    opset8 = opset(8)
    x = opset8.parameter([-1, 4], np.float32, name="x")
    size = opset8.reduce_max(opset8.abs(x), opset8.constant(np.array([axis])), True)
    openvino.save_model(openvino.Model([opset8.divide(x, size)], [x], "m"), path, compress_to_fp16=False)
    return path


def answers(pipe, count=40):
    """Return the largest error of requests of many callers to y = x / |x|, and the number of batches."""
    data = [RANDOM.uniform(0.1, 100, (1, 4)).astype(np.float32) for _ in range(count)]
    before = pipe.stats()["default"].batches
    requests = pipe([{"data": each} for each in data])
    return [array(request) for request in requests], data, pipe.stats()["default"].batches - before


def test_forty_callers_of_a_model_that_openvino_computes_wrongly_are_not_answered_wrongly(pipe, tmp_path):
    """Of opset 13, its ReduceL1 reduces over the batch too: 37 of 40 answers depended on the neighbours."""
    with pytest.raises(hami.ConfigError, match="ReduceL1"):
        pipe(model=str(scaled(tmp_path / "m.onnx", version=13)))
    accepted = pipe(model=str(scaled(tmp_path / "m.onnx", version=13)), accept_differences=["ReduceL1"])
    results, data, batches = answers(accepted)
    assert batches == 40
    for result, x in zip(results, data, strict=True):
        np.testing.assert_allclose(result, x / np.abs(x).sum(), rtol=1e-5)


def test_forty_callers_of_independent_rows_are_joined_and_right(pipe, tmp_path):
    results, data, batches = answers(pipe(model=str(scaled(tmp_path / "m.onnx"))))
    assert batches < 40
    for result, x in zip(results, data, strict=True):
        np.testing.assert_allclose(result, x / np.abs(x).sum(), rtol=1e-5)


def test_rows_that_influence_each_other_are_not_joined_and_the_reason_is_named(pipe, tmp_path):
    path = scaled(tmp_path / "m.onnx", "ReduceMax", axis=0)
    mixing = pipe(model=str(path))
    results, _data, batches = answers(mixing)
    assert batches == 40
    for result in results:
        np.testing.assert_allclose(result, 1, rtol=1e-6)
    (remark,) = [text for text in mixing.remarks() if "one by one" in text]
    assert 'rows influence each other: ReduceMax (opset 18, node "size") ' in remark
    with pytest.raises(hami.ConfigError) as error:
        pipe(model=str(path), max=8)
    first, *others = str(error.value).splitlines()
    assert first == 'max is 8; the backend of node "default" takes at most 1'
    assert remark.removeprefix("default: ") in others


def test_batched_joins_rows_that_influence_each_other_and_warns_once(pipe, tmp_path, caplog):
    path = scaled(tmp_path / "m.onnx", "ReduceMax", axis=0)
    results, _, batches = answers(pipe(model=str(path), batched=True, instance_num=2))
    assert batches < 40
    assert min(result.min() for result in results) < 0.5
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(
        f'batched = true joins requests of "{path}" although rows influence each other: ReduceMax'
    )


@pytest.mark.parametrize(("axis", "joined"), [(1, True), (0, False)])
def test_the_rows_of_an_ir_are_tested_when_it_is_opened(pipe, tmp_path, axis, joined):
    results, data, batches = answers(pipe(model=str(scaled_ir(tmp_path / "m.xml", axis))))
    assert (batches < 40) == joined
    for result, x in zip(results, data, strict=True):
        np.testing.assert_allclose(result, x / (np.abs(x).max() if joined else np.abs(x)), rtol=1e-5)


def test_the_log_says_how_the_rows_of_an_ir_differ_and_in_what_it_computes(pipe, tmp_path, caplog):
    caplog.set_level("INFO", "hami")
    pipe(model=str(scaled_ir(tmp_path / "m.xml", 0)), instance_num=2)
    texts = [record.getMessage() for record in caplog.records if "m.xml" in record.getMessage()]
    (rows,) = [text for text in texts if "run one by one" in text]
    assert "rows influence each other: output " in rows
    assert " of a row is " in rows
    assert " in a batch of 3" in rows
    (precision,) = [text for text in texts if "computes with" in text]
    assert precision.endswith(" on CPU computes with INFERENCE_PRECISION_HINT = f32")


def test_integer_inputs_are_tested_with_values_that_the_model_takes(pipe, tmp_path):
    """y = table[x], an IR: an index above 1 makes the run fail."""
    opset8 = opset(8)
    x = opset8.parameter([-1, -1], np.int64, name="x")
    table = opset8.constant(np.float32([[1, 2], [3, 4]]))
    y = opset8.gather(table, x, opset8.constant(np.array(0)))
    openvino.save_model(openvino.Model([y], [x], "m"), tmp_path / "m.xml", compress_to_fp16=False)
    lookup = pipe(model=str(tmp_path / "m.xml"))
    requests = lookup([{"data": np.array([[i % 2]])} for i in range(8)])
    assert lookup.stats()["default"].batches < 8
    assert [values(request) for request in requests] == [[[[1, 2]]], [[[3, 4]]]] * 4


def rare_mixing(path):
    """y = x + 1000 * max(x over the rows) where that is above 1000, which no test of rows tries. An IR."""
    opset8 = opset(8)
    x = opset8.parameter([-1, 4], np.float32, name="x")
    most = opset8.reduce_max(x, opset8.constant(np.array([0, 1])), True)
    extra = opset8.relu(opset8.subtract(most, opset8.constant(np.float32(100_000))))
    openvino.save_model(openvino.Model([opset8.add(x, extra)], [x], "m"), path, compress_to_fp16=False)
    return path


def test_a_difference_that_the_watch_sees_ends_joining_and_is_reported_once(pipe, tmp_path, caplog):
    rare = pipe(model=str(rare_mixing(tmp_path / "m.xml")))
    batches = rare.stats()["default"].batches
    rare([{"data": np.ones((1, 4), np.float32)} for _ in range(8)])
    assert rare.stats()["default"].batches == batches + 1, "nothing shows yet that rows are not independent"
    ordinary, large = np.ones((1, 4), np.float32), np.full((1, 4), 200_000, np.float32)
    for _ in range(300):
        requests = rare([{"data": ordinary}, {"data": large}])
    assert rare.stats()["default"].counters["joining_stopped"] == 1
    assert [values(request) for request in requests] == [[[1] * 4], [[300_000] * 4]]
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "of a request is 1 alone and 100001 in a batch of 2; requests run one by one from now on" in warning
    other = pipe(model=str(tmp_path / "m.xml"))
    requests = other([{"data": ordinary}, {"data": large}])
    assert values(requests[0]) == [[1] * 4], "another pipe with the same open model does not join either"


def test_the_batch_in_which_the_watch_sees_a_difference_is_answered_rightly(pipe, tmp_path):
    rare = pipe(model=str(rare_mixing(tmp_path / "m.xml")))
    ordinary, large = np.ones((1, 4), np.float32), np.full((1, 4), 200_000, np.float32)
    for _ in range(300):
        requests = rare([{"data": ordinary}, {"data": large}])
        if "joining_stopped" in rare.stats()["default"].counters:
            break
    assert [values(request) for request in requests] == [[[1] * 4], [[300_000] * 4]]


def test_watched_batches_are_counted(pipe, tmp_path):
    joined = pipe(model=str(scaled(tmp_path / "m.onnx")))
    for _ in range(256):
        joined([{"data": np.ones((1, 4), np.float32)} for _ in range(2)])
    assert joined.stats()["default"].counters == {"watched_batches": 1}


def test_a_fixed_shape_whose_rows_influence_each_other_is_one_request(pipe, tmp_path):
    nodes = [helper.make_node("ReduceMax", ["x"], ["m"], axes=[0]), helper.make_node("Div", ["x", "m"], ["y"])]
    port = (TensorProto.FLOAT, [3, 2])
    whole = pipe(model=str(save(tmp_path / "m.onnx", nodes, {"x": port}, {"y": port})))
    data = np.float32([[1, 2], [2, 4], [4, 8]])
    np.testing.assert_allclose(array(whole({"data": data})), data / data.max(0), rtol=1e-6)
    with pytest.raises(hami.RequestError):
        whole({"data": data[:1]})


def test_zero_rows_give_an_empty_result_without_a_run(pipe, tmp_path):
    """OpenVINO rejects zero rows for MaxPool."""
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])
    ports = {"x": (TensorProto.FLOAT, ["n", 3, "h", "w"])}, {"y": (TensorProto.FLOAT, ["n", 3, None, None])}
    pooled = pipe(model=str(save(tmp_path / "m.onnx", [node], *ports)))
    data = [np.ones((rows, 3, 4, 5), np.float32) for rows in (1, 0, 2)]
    requests = pooled([{"data": each} for each in data])
    assert [array(request).shape for request in requests] == [(1, 3, 3, 4), (0, 3, 3, 4), (2, 3, 3, 4)]
    assert array(pooled({"data": data[1]})).shape == (0, 3, 3, 4)


@pytest.mark.parametrize("name", ["Relu", "Identity"])
def test_ports_have_the_names_of_the_file(pipe, tmp_path, name):
    """OpenVINO merges an output that is an input with it, and may then report any of the names."""
    nodes = [helper.make_node("Identity", ["x"], ["same"]), helper.make_node(name, ["x"], ["other"])]
    port = (TensorProto.FLOAT, ["n", 2])
    inputs = {"x": port, "not_used": port}
    model = pipe(model=str(save(tmp_path / "m.onnx", nodes, inputs, {"same": port, "other": port})))
    data = np.float32([[1, 2]])
    for given in ({"x": data, "not_used": data}, [data, data]):
        result = model({"data": given})["result"]
        assert {key: array(result, key).tolist() for key in result} == {"same": [[1, 2]], "other": [[1, 2]]}


def test_an_input_that_reaches_an_output_unchanged_keeps_its_name(pipe, tmp_path):
    node = helper.make_node("Dropout", ["x"], ["y"])
    port = (TensorProto.FLOAT, ["n", 2])
    model = pipe(model=str(save(tmp_path / "m.onnx", [node], {"x": port}, {"y": port})))
    assert values(model({"data": {"x": np.float32([[1, 2]])}})) == [[1, 2]]


def test_many_threads_of_a_watched_model_get_their_own_results(pipe, tmp_path):
    joined = pipe(model=str(scaled(tmp_path / "m.onnx")), instance_num=3)
    data = [RANDOM.uniform(0.1, 100, (1, 4)).astype(np.float32) for _ in range(600)]
    with ThreadPoolExecutor(16) as threads:
        results = list(threads.map(lambda each: array(joined({"data": each})), data))
    for result, x in zip(results, data, strict=True):
        np.testing.assert_allclose(result, x / np.abs(x).sum(), rtol=1e-5)


def opened_elsewhere(path, cache) -> str:
    """Return what the log of another process says about the joining of a model."""
    program = (
        "import logging, sys, hami; logging.basicConfig(level='INFO', format='%(message)s', stream=sys.stdout);"
        "hami.pipe({'backend': 'OpenvinoTensor', 'model': sys.argv[1], 'instance_num': 2}).close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return "\n".join(line for line in done.stdout.splitlines() if "one by one" in line)


@pytest.mark.parametrize("axis", [0, 1])
def test_what_a_test_of_rows_found_is_kept_for_other_processes(tmp_path, axis):
    """The kept finding is changed here, so that a test that runs again would show."""
    path = scaled_ir(tmp_path / "m.xml", axis)
    old = time.time() - 60
    for file in (path, path.with_suffix(".bin")):
        os.utime(file, (old, old))
    first = opened_elsewhere(path, tmp_path / "cache")
    assert ("rows influence each other: output " in first) == (axis == 0)
    kept = list((tmp_path / "cache" / "hami" / "findings").iterdir())
    assert kept
    for file in kept:
        entry = json.loads(file.read_text())
        assert entry["finding"]["independent"] == (axis == 1)
        entry["finding"] = {"independent": axis == 0, "why": "a changed finding"}
        file.write_text(json.dumps(entry))
    for name in ("m", "renamed"):
        shown = opened_elsewhere(tmp_path / f"{name}.xml", tmp_path / "cache")
        assert ("a changed finding" in shown) == (axis == 1)
        assert axis == 1 or not shown
        for suffix in (".xml", ".bin"):
            shutil.copy(tmp_path / f"m{suffix}", tmp_path / f"renamed{suffix}")


def test_a_model_that_is_open_is_shared_after_its_test(pipe, tmp_path, monkeypatch):
    """The second pipe knows the finding, the first one did not: both watch the same open model."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = scaled_ir(tmp_path / "m.xml", 1)
    pair = [pipe(model=str(path)) for _ in range(2)]
    for i in range(256):
        pair[i % 2]([{"data": np.ones((1, 4), np.float32)} for _ in range(2)])
    assert sum(each.stats()["default"].counters.get("watched_batches", 0) for each in pair) == 1
