"""Joining: a request never gets another answer because of its neighbours, and is joined where that is safe."""

from __future__ import annotations

import itertools
import logging
import threading

import hami
import numpy as np
import pytest
from conftest import save
from onnx import TensorProto, helper

FLOAT = TensorProto.FLOAT


def answers(pipe, arrays, callers=False):
    """Return the results of requests in one call, or from one thread for each, which start at the same time."""
    requests = [{"data": array} for array in arrays]
    if not callers:
        pipe(requests)
        return [request["result"] for request in requests]
    barrier = threading.Barrier(len(requests))

    def call(request):
        barrier.wait()
        pipe(request)

    threads = [threading.Thread(target=call, args=[request]) for request in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [request["result"] for request in requests]


def assert_alone_is_together(make_pipe, path, arrays, **config):
    """Requests in a list and from callers at the same time get what each gets alone."""
    pipe = make_pipe(model=str(path), **config)
    alone = [pipe({"data": array})["result"] for array in arrays]
    for callers in (False, True):
        for own, joined in zip(alone, answers(pipe, arrays, callers), strict=True):
            for a, b in zip(
                *(each.values() if isinstance(each, dict) else [each] for each in (own, joined)), strict=True
            ):
                np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
    return pipe


def dynamically_quantised(path, width=4):
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"], name="quantise"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    return save(path, nodes, {"x": (FLOAT, ["batch", width])}, {"y": (FLOAT, ["batch", width])})


def attention_over_tokens(path):
    """Tokens attend to each other along axis 0, whose name is the same in input and output."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"]),
        helper.make_node("MatMul", ["x", "t"], ["scores"], name="scores"),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "x"], ["y"]),
    ]
    return save(path, nodes, {"x": (FLOAT, ["tokens", 4])}, {"y": (FLOAT, ["tokens", 4])})


def time_first_lstm(path, hidden=3, width=2):
    generator = np.random.default_rng(0)
    constants = {
        "w": generator.standard_normal((1, 4 * hidden, width)).astype(np.float32),
        "r": generator.standard_normal((1, 4 * hidden, hidden)).astype(np.float32),
    }
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["all"], hidden_size=hidden, name="lstm"),
        helper.make_node("Squeeze", ["all", "axis"], ["y"]),
    ]
    constants["axis"] = np.array([1])
    ports = {"x": (FLOAT, ["time", "batch", width])}, {"y": (FLOAT, ["time", "batch", hidden])}
    return save(path, nodes, *ports, constants)


def detector(path):
    """Boxes of all rows compete in one non-maximum suppression."""
    nodes = [
        helper.make_node("Unsqueeze", ["boxes", "zero"], ["b"]),
        helper.make_node("Transpose", ["scores"], ["s"], perm=[1, 0]),
        helper.make_node("Unsqueeze", ["s", "zero"], ["s3"]),
        helper.make_node("NonMaxSuppression", ["b", "s3", "most", "iou"], ["chosen"], name="nms"),
        helper.make_node("Gather", ["chosen", "last"], ["index"], axis=1),
        helper.make_node("Sub", ["scores", "scores"], ["none"]),
        helper.make_node("GatherND", ["scores", "index"], ["best"]),
        helper.make_node("ScatterND", ["none", "index", "best"], ["kept"]),
    ]
    constants = {"zero": np.array([0]), "most": np.array([10]), "iou": np.float32([0.5]), "last": np.array([2])}
    ports = {"boxes": (FLOAT, ["objects", 4]), "scores": (FLOAT, ["objects", 1])}, {"kept": (FLOAT, ["objects", 1])}
    return save(path, nodes, *ports, constants)


SMALL, LARGE = np.float32([[0.1, 0.2, 0.3, 0.4]]), np.float32([[100, -100, 50, 25]])


def test_dynamic_quantisation_gives_each_caller_its_own_scale(pipe, tmp_path):
    path = dynamically_quantised(tmp_path / "dynamic.onnx")
    assert_alone_is_together(pipe, path, [SMALL, LARGE])


def test_max_on_a_dynamically_quantised_model_says_what_to_change(tmp_path):
    path = dynamically_quantised(tmp_path / "dynamic.onnx")
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "OnnxTensor", "model": str(path), "max": 8})
    text = str(error.value)
    assert "max is 8; the backend of node" in text
    assert (
        "OnnxTensor runs requests one by one: rows influence each other: "
        'DynamicQuantizeLinear (opset 17, node "quantise")'
    ) in text
    assert "; quantise the model with static scales, or set batched = true to accept answers" in text


def test_an_override_against_a_finding_joins_and_warns_once(pipe, tmp_path, caplog):
    path = dynamically_quantised(tmp_path / "dynamic.onnx")
    with caplog.at_level(logging.WARNING, "hami.rows"):
        for _ in range(2):
            joined = answers(pipe(model=str(path), batched=True, max=2), [SMALL, LARGE])
    assert joined[0].tolist() != SMALL.tolist()
    assert joined[0][0, 0] == 0
    (record,) = [record for record in caplog.records if record.name == "hami.rows"]
    assert "batched = true joins the requests of" in record.getMessage()
    assert "although rows influence each other: DynamicQuantizeLinear" in record.getMessage()


def test_attention_over_the_first_axis_is_not_joined(pipe, tmp_path):
    path = attention_over_tokens(tmp_path / "attention.onnx")
    generator = np.random.default_rng(1)
    arrays = [generator.standard_normal((3, 4)).astype(np.float32) * scale for scale in (1, 3)]
    assert_alone_is_together(pipe, path, arrays)
    with pytest.raises(
        hami.ConfigError,
        match="takes at most 1\nOnnxTensor runs requests one by one: rows influence each other: MatMul",
    ):
        hami.pipe({"backend": "OnnxTensor", "model": str(path), "max": 8})


def test_request_size_of_a_model_whose_rows_depend_on_each_other_is_refused_with_the_reason(pipe, tmp_path):
    path = attention_over_tokens(tmp_path / "attention.onnx")
    with pytest.raises(hami.RequestError) as error:
        pipe(model=str(path))({"data": np.ones((3, 4), np.float32), "request_size": 3})
    first, reason, *_ = str(error.value).splitlines()
    assert first == 'request_size is 3; node "default" takes at most 1'
    assert "MatMul" in reason
    assert "export the model so that this operator works within each row" in reason


def test_a_time_first_lstm_is_joined_along_its_second_axis(pipe, tmp_path):
    path = time_first_lstm(tmp_path / "lstm.onnx")
    generator = np.random.default_rng(2)
    arrays = [generator.standard_normal((5, rows, 2)).astype(np.float32) for rows in (1, 1, 2)]
    running = assert_alone_is_together(pipe, path, arrays, max=8)
    before = running.stats()["default"].counters["groups"]
    answers(running, arrays)
    assert running.stats()["default"].counters["groups"] == before + 1


def test_rows_that_compete_in_a_suppression_are_not_joined(pipe, tmp_path):
    path = detector(tmp_path / "detector.onnx")
    boxes = np.float32([[0, 0, 10, 10], [20, 20, 30, 30]])
    requests = [
        {"boxes": boxes, "scores": np.float32([[0.9], [0.8]])},
        {"boxes": boxes + 1, "scores": np.float32([[0.7], [0.95]])},
    ]
    assert_alone_is_together(pipe, path, requests)


def test_products_of_all_pairs_of_rows_are_not_joined(pipe, models):
    path = models.products(2, "w")
    assert_alone_is_together(pipe, path, [np.float32([[1, 2], [3, 4]]), np.float32([[5, 6], [7, 8]])])


def test_inputs_that_rows_share_are_only_joined_if_they_are_equal(pipe, models):
    running = pipe(model=str(models.add_scalar()), max=8)
    requests = [{"data": [np.float32([[i, i]]), np.float32(10 * (i % 2))]} for i in range(6)]
    running(requests)
    assert [request["result"].tolist() for request in requests] == [[[i + 10 * (i % 2)] * 2] for i in range(6)]
    assert running.stats()["default"].counters["groups"] == 2


def test_an_axis_that_the_user_names_is_used(pipe, tmp_path):
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0, 2])
    path = save(tmp_path / "swap.onnx", [node], {"x": (FLOAT, ["a", "b", 2])}, {"y": (FLOAT, ["b", "a", 2])})
    running = pipe(model=str(path), batch_axes=["x=0", "y=1"], max=4)
    arrays = [np.full((1, 3, 2), i, np.float32) for i in range(4)]
    assert [result.tolist() for result in answers(running, arrays)] == [
        array.transpose(1, 0, 2).tolist() for array in arrays
    ]
    assert running.stats()["default"].counters["groups"] == 1
    with pytest.raises(hami.ConfigError, match='"batch_axes" takes entries such as "x=0"'):
        pipe(model=str(path), batch_axes=["z=0"])
    with pytest.raises(hami.ConfigError, match='names axis 3 of "x", which has 3 axes'):
        pipe(model=str(path), batch_axes=["x=3"])


def test_a_fixed_first_axis_is_one_request_if_its_rows_influence_each_other(pipe, tmp_path):
    node = helper.make_node("Softmax", ["x"], ["y"], axis=0, name="over_rows")
    path = save(tmp_path / "softmax.onnx", [node], {"x": (FLOAT, [3, 2])}, {"y": (FLOAT, [3, 2])})
    running = pipe(model=str(path))
    assert running({"data": np.zeros((3, 2), np.float32)})["result"].tolist() == [[pytest.approx(1 / 3)] * 2] * 3
    with pytest.raises(hami.RequestError) as error:
        running({"data": np.zeros((2, 2), np.float32)})
    text = str(error.value).splitlines()[0]
    assert text.startswith('OnnxTensor: input "x" expects float32 [3, 2], got float32 [2, 2]; a batch with fewer rows')
    assert "is not padded, because rows influence each other" in text


def test_kept_results_keep_little_more_than_their_own_memory(pipe, models):
    width = 100_000  # 0.4 MB
    running = pipe(model=str(models.double(width=width)), max=32)
    kept = []
    for start in range(20):
        requests = [{"data": np.full((1, width), start + i, np.float32)} for i in range(8)]
        running(requests)
        kept.append(requests[3]["result"])
    whole = [running({"data": np.full((1, width), start, np.float32)})["result"] for start in range(20)]
    assert [result[0, 0] for result in whole] == [2 * start for start in range(20)]
    ends = sorted((address(result), address(result) + result.nbytes) for result in [*kept, *whole])
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))  # each has its own memory
    assert [result[0, 0] for result in kept] == [2 * (start + 3) for start in range(20)]


def address(tensor):
    return hami.to_numpy(tensor).__array_interface__["data"][0]


def test_a_watched_row_that_differs_ends_the_joining(pipe, tmp_path, caplog, monkeypatch):
    """The model is declared independent by a finding in the cache that is wrong, as a mistake in a rule would be."""
    from hami_model_check import row_watch
    from hami_model_check.joining import Joining

    import hami_onnx._joining as joining

    wrong = Joining(True, "proven", "independent", {"x": 0}, {"y": 0})
    monkeypatch.setattr(joining, "decide_joining", lambda *_, **__: wrong)
    monkeypatch.setattr(row_watch, "EVERY", 1)
    monkeypatch.setattr(row_watch.RowWatch.__init__, "__kwdefaults__", {"every": 1, "stops": True})
    path = dynamically_quantised(tmp_path / "dynamic.onnx")
    running = pipe(model=str(path), max=4)
    with caplog.at_level(logging.WARNING, "hami.rows"):
        for _ in range(3):
            results = answers(running, [LARGE, SMALL])
            np.testing.assert_allclose(results[1], SMALL, atol=1e-3)  # also in the batch that was found wrong
    (record,) = [record for record in caplog.records if record.name == "hami.rows"]
    assert 'depend on their neighbours: output "y" of a row is 0.4' in record.getMessage()
    assert "requests run one by one from now on" in record.getMessage()
    counters = running.stats()["default"].counters
    assert (counters["watched"], counters["watch_differences"]) == (1, 1)
    assert any("depend on their neighbours" in sentence for sentence in running.remarks())


def test_inputs_that_choose_an_axis_are_not_trusted_to_a_test(pipe, tmp_path):
    """The axes of a sum are an input: a test with some axes says nothing about others."""
    node = helper.make_node("ReduceLogSum", ["x", "axes"], ["y"], keepdims=0)
    ports = {"x": (FLOAT, [3, 4, 5]), "axes": (TensorProto.INT64, [2])}, {"y": (FLOAT, None)}
    path = save(tmp_path / "sum.onnx", [node], *ports, opset=18)
    x, axes = np.ones((3, 4, 5), np.float32), np.array([0, 1])
    requests = [{"data": [x * scale, axes]} for scale in (1, 2, 3)]
    running = pipe(model=str(path))
    running(requests)
    for request, scale in zip(requests, (1, 2, 3), strict=True):
        np.testing.assert_allclose(request["result"], np.log(np.full(5, 12 * scale)), rtol=1e-5)


def test_max_on_a_model_that_needs_exactly_one_row_says_what_to_export(tmp_path):
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    ports = {"x": (FLOAT, [1, 3])}, {"y": (FLOAT, [1, 3])}
    path = save(tmp_path / "one.onnx", [node], *ports, {"shape": np.array([1, 3])})
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "OnnxTensor", "model": str(path), "max": 8})
    assert (
        'OnnxTensor runs rows one by one: input "x" has the fixed shape float32 [1, 3]; export the model with '
        'dynamic_shapes={"x": {0: "batch"}} of torch.onnx.export, or another free batch axis'
    ) in str(error.value)


def test_a_batch_axis_that_an_output_lacks_is_no_reason_to_mix_callers(pipe, tmp_path):
    """Each caller may change its result, also one that all rows share."""
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Identity", ["table"], ["shared"])]
    ports = {"x": (FLOAT, ["n", 2])}, {"y": (FLOAT, ["n", 2]), "shared": (FLOAT, [2])}
    path = save(tmp_path / "shared.onnx", nodes, *ports, {"table": np.float32([1, 2])})
    running = pipe(model=str(path), max=4)
    requests = [{"data": np.full((1, 2), i, np.float32)} for i in range(4)]
    running(requests)
    assert running.stats()["default"].counters["groups"] == 1
    hami.to_numpy(requests[0]["result"]["shared"])[:] = 9
    hami.to_numpy(requests[0]["result"]["y"])[:] = 9
    assert running({"data": np.zeros((1, 2), np.float32)})["result"]["shared"].tolist() == [1, 2]
    assert [request["result"]["shared"].tolist() for request in requests[1:]] == [[1, 2]] * 3
    assert [request["result"]["y"].tolist() for request in requests[1:]] == [[[i, i]] for i in (1, 2, 3)]


@pytest.mark.parametrize("rows", ["batch", 4])
def test_a_classifier_of_skl2onnx_with_a_map_for_each_row_is_joined(pipe, tmp_path, rows):
    nodes = [
        helper.make_node(
            "LinearClassifier",
            ["x"],
            ["label", "scores"],
            domain="ai.onnx.ml",
            coefficients=[1.0, 0, 0, 1, -1, -1],
            intercepts=[0.0, 0.5, 1],
            classlabels_ints=[0, 1, 2],
            post_transform="SOFTMAX",
        ),
        helper.make_node("ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2]),
    ]
    label = helper.make_tensor_value_info("label", TensorProto.INT64, [rows])
    key_type, value_type = TensorProto.INT64, helper.make_tensor_type_proto(FLOAT, [])
    maps = helper.make_value_info(
        "maps", helper.make_sequence_type_proto(helper.make_map_type_proto(key_type, value_type))
    )
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", FLOAT, [rows, 2])], [label, maps])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    path = tmp_path / "iris.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    arrays = [np.float32([[i, 3 - i]] * (1 + i % 2)) for i in range(8)]
    joined = pipe(model=str(path), max=4)
    alone = [joined({"data": array})["result"] for array in arrays]
    before = joined.stats()["default"].counters["groups"]
    requests = [{"data": array, "request_size": len(array)} for array in arrays]
    joined(requests)
    for request, own in zip(requests, alone, strict=True):
        assert hami.to_numpy(request["label"]).tolist() == hami.to_numpy(own["label"]).tolist()
        assert [list(row) for row in request["maps"]] == [[0, 1, 2]] * len(request["data"])
        for row, other in zip(request["maps"], own["maps"], strict=True):
            np.testing.assert_allclose(list(row.values()), list(other.values()), rtol=1e-6)
    assert joined.stats()["default"].counters["groups"] - before < len(arrays)
