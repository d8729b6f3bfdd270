"""A model that an engine runs is served with the names, datatypes and shapes of the model itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hami_serve.classification import classified
from hami_serve.errors import BadRequest

onnx = pytest.importorskip("onnx", reason="writes ONNX models")
pytest.importorskip("hami_onnx", reason="runs them")


@pytest.fixture
def served(tmp_path, start) -> Any:
    """Return a server of a classifier and of one with two inputs."""
    make, numbers = onnx.helper, onnx.TensorProto

    def save(name: str, nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any]) -> str:
        ports = [[make.make_tensor_value_info(key, *kind) for key, kind in each.items()] for each in (inputs, outputs)]
        graph = make.make_graph(nodes, "g", *ports)
        onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9), tmp_path / name)
        return str(tmp_path / name)

    rows = (numbers.FLOAT, ["batch", 3])
    save("scores.onnx", [make.make_node("Add", ["x", "x"], ["twice"])], {"x": rows}, {"twice": rows})
    whole = (numbers.INT64, ["batch", 2])
    sums = [make.make_node("Add", ["a", "b"], ["sum"]), make.make_node("Sub", ["a", "b"], ["difference"])]
    save("both.onnx", sums, {"a": whole, "b": whole}, {"sum": whole, "difference": whole})
    (tmp_path / "labels.txt").write_text("cat\ndog\nowl\n")
    labelled = {"name": "twice", "datatype": "FP32", "shape": [-1, 3], "labels": str(tmp_path / "labels.txt")}
    models = {name: {"source": str(tmp_path / f"{name}.onnx")} for name in ("scores", "both")}
    return start({**models, "labelled": {**models["scores"], "outputs": [labelled]}})


def infer(server: Any, model: str, inputs: dict[str, Any], datatype: str = "FP32", **others: Any) -> tuple[int, Any]:
    entries = [
        {"name": name, "datatype": datatype, "shape": list(np.shape(data)), "data": data}
        for name, data in inputs.items()
    ]
    return server.post(f"/v2/models/{model}/infer", {"inputs": entries, **others})


def test_the_metadata_has_the_inputs_and_outputs_of_the_model(served):
    _, answer = served.get("/v2/models/both")
    assert answer["inputs"] == [{"name": name, "datatype": "INT64", "shape": [-1, 2]} for name in "ab"]
    assert [each["name"] for each in answer["outputs"]] == ["sum", "difference"]
    _, answer = served.get("/v2/models/scores")
    assert answer["outputs"] == [{"name": "twice", "datatype": "FP32", "shape": [-1, 3]}]


def test_outputs_are_answered_by_their_names(served):
    status, answer = infer(served, "scores", {"x": [[1.0, 2.0, 3.0]]})
    assert (status, answer["outputs"][0]["name"]) == (200, "twice")
    wanted = {"outputs": [{"name": "difference"}]}
    status, answer = infer(served, "both", {"a": [[5, 5]], "b": [[1, 2]]}, "INT64", **wanted)
    assert [(each["name"], each["data"]) for each in answer["outputs"]] == [("difference", [4, 3])]
    status, answer = infer(served, "both", {"a": [[5, 5]], "b": [[1, 2]]}, "INT64", outputs=[{"name": "product"}])
    assert (status, "outputs: sum, difference" in answer["error"]) == (400, True)


def test_a_wrong_name_of_an_input_is_an_error_that_has_the_right_one(served):
    status, answer = infer(served, "scores", {"foo": [[1.0, 2.0, 3.0]]})
    assert (status, 'needs the input "x"' in answer["error"], '"foo"' in answer["error"]) == (400, True, True)


def test_the_engine_converts_numbers_to_its_datatype(served):
    status, answer = infer(served, "scores", {"x": [[1.0, 2.0, 3.0]]}, "FP64")
    assert (status, answer["outputs"][0]["datatype"], answer["outputs"][0]["data"]) == (200, "FP32", [2.0, 4.0, 6.0])


def test_classes_have_score_index_and_label(served):
    rows = [[1.0, 3.0, 2.0], [5.0, 0.0, 5.0]]
    wanted = [{"name": "twice", "parameters": {"classification": 2}}]
    _, answer = infer(served, "labelled", {"x": rows}, outputs=wanted)
    (output,) = answer["outputs"]
    assert (output["shape"], output["data"]) == (
        [2, 2],
        ["6.000000:1:dog", "4.000000:2:owl", "10.000000:0:cat", "10.000000:2:owl"],
    )


def test_the_count_of_inferences_is_that_of_rows(served):
    for rows in (1, 3):
        infer(served, "scores", {"x": [[1.0, 2.0, 3.0]] * rows})
    _, answer = served.get("/v2/models/scores/stats")
    (stats,) = answer["model_stats"]
    assert (stats["inference_count"], stats["inference_stats"]["success"]["count"]) == (4, 2)


def test_classes_of_one_row_of_integers_and_of_nan():
    assert classified("y", np.uint8([3, 200, 7]), 5, ["a"]).tolist() == ["200:1", "7:2", "3:0:a"]
    assert classified("y", np.int64([-(2**63), 2**63 - 1, 0]), 3, []).tolist() == [
        "9223372036854775807:1",
        "0:2",
        "-9223372036854775808:0",
    ]
    assert classified("y", np.float32([np.nan, 1, np.inf]), 3, []).tolist() == ["inf:2", "1.000000:1", "nan:0"]
    assert classified("y", np.zeros((0, 3), np.float32), 2, []).shape == (0, 2)


@pytest.mark.parametrize("shape", [(3000, 3), (2, 5000)])
def test_classes_of_many_rows_are_those_of_each_row(monkeypatch, shape):
    pauses = []
    monkeypatch.setattr("hami_serve.classification.pause", lambda: pauses.append(1))
    rows = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    found = classified("y", rows, shape[1], ["a"])
    assert len(pauses) > 2
    for row, texts in list(zip(rows, found, strict=True))[::500]:
        order = sorted(range(len(row)), key=lambda index: -row[index])
        assert texts.tolist() == [f"{row[index]:f}:{index}{'' if index else ':a'}" for index in order]


def test_more_classes_than_an_answer_has_are_an_error():
    """Each is a text of many more bytes than its score."""
    with pytest.raises(BadRequest, match='output "y" has 1048577 rows with 1 classes each; an answer has at most'):
        classified("y", np.zeros((2**20 + 1, 1), np.int8), 5, [])


def test_a_list_of_maps_is_json_text_and_the_inputs_keep_their_names(tmp_path, start):
    make, numbers = onnx.helper, onnx.TensorProto
    scores = make.make_node("Softmax", ["X"], ["scores"])
    maps = make.make_node("ZipMap", ["scores"], ["output_probability"], domain="ai.onnx.ml", classlabels_int64s=[3, 4])
    of_rows = make.make_sequence_type_proto(
        make.make_map_type_proto(numbers.INT64, make.make_tensor_type_proto(numbers.FLOAT, []))
    )
    outputs = [make.make_value_info("output_probability", of_rows)]
    graph = make.make_graph([scores, maps], "g", [make.make_tensor_value_info("X", numbers.FLOAT, ["n", 2])], outputs)
    opsets = [make.make_opsetid("", 17), make.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(make.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "maps.onnx")
    server = start({"maps": {"source": str(tmp_path / "maps.onnx")}})
    _, answer = server.get("/v2/models/maps")
    assert answer["inputs"] == [{"name": "X", "datatype": "FP32", "shape": [-1, 2]}]
    assert answer["outputs"] == [{"name": "output_probability", "datatype": "BYTES", "shape": [1]}]
    status, answer = infer(server, "maps", {"X": [[1.0, 1.0], [2.0, 2.0]]})
    assert (status, answer["outputs"][0]["data"]) == (200, ['[{"3": 0.5, "4": 0.5}, {"3": 0.5, "4": 0.5}]'])
