"""hami import-triton: a repository of Triton becomes models.toml, and its clients get the same numbers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import hami
import numpy as np
import pytest

from hami_serve.commands import import_triton_command
from hami_serve.source import read_components
from hami_serve.triton_import import import_triton

onnx = pytest.importorskip("onnx", reason="writes ONNX models")
pytest.importorskip("hami_onnx", reason="runs them")
pytest.importorskip("google.protobuf", reason="needs hami-serve[grpc]")

HEAD = '<ir_version: 9, opset_import: ["" : 17]>\n'
MODELS = {
    "both": "g (float[n, 2] a, float[n, 2] b) => (float[n, 2] total, float[n, 2] rest)\n"
    "{ total = Add(a, b) rest = Sub(a, b) }",
    "double": "g (float[n, 2] x) => (float[n, 2] y) { y = Add(x, x) }",
    "join": "g (float[n, 2] p, float[n, 2] q) => (float[n, 2] z) { z = Mul(p, q) }",
}


def port(name: str) -> str:
    return f'{{ name: "{name}" data_type: TYPE_FP32 dims: [ 2 ] }}'


def ports(inputs: str, outputs: str) -> str:
    return f"input [ {', '.join(map(port, inputs.split()))} ]\noutput [ {', '.join(map(port, outputs.split()))} ]\n"


def step(model: str, inputs: dict[str, str], outputs: dict[str, str]) -> str:
    maps = [("input_map", inputs), ("output_map", outputs)]
    entries = [f'{key} {{ key: "{a}" value: "{b}" }}' for key, each in maps for a, b in each.items()]
    return f'{{ model_name: "{model}" model_version: -1 {" ".join(entries)} }}'


ONNX = 'backend: "onnxruntime"\nmax_batch_size: 8\n'
CHAIN = (
    'platform: "ensemble"\nmax_batch_size: 8\n'
    + ports("LEFT RIGHT", "PRODUCT TOTAL")
    + "ensemble_scheduling { step [ "
    + ", ".join(
        [
            step("join", {"p": "twice", "q": "t_rest"}, {"z": "PRODUCT"}),
            step("both", {"a": "LEFT", "b": "RIGHT"}, {"total": "TOTAL", "rest": "t_rest"}),
            step("double", {"x": "TOTAL"}, {"y": "twice"}),
        ]
    )
    + " ] }"
)


@pytest.fixture
def repository(tmp_path) -> Any:
    """repository(name=text of config.pbtxt, …) writes the three models and others; returns the folder."""
    folder = tmp_path / "repository"

    def write(**others: str) -> Path:
        configs = {
            "both": ONNX + ports("a b", "total rest") + "instance_group [ { count: 2 kind: KIND_CPU } ]",
            "double": 'platform: "onnxruntime_onnx"\nmax_batch_size: 8\n'
            + ports("x", "y").replace('"y"', '"y" label_filename: "labels.txt"')
            + "dynamic_batching { max_queue_delay_microseconds: 500 preferred_batch_size: [ 4 ] priority_levels: 2 "
            "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 9 } }",
            "join": ONNX + ports("p q", "z") + "response_cache { enable: true }",
        }
        for name, text in {**configs, **others}.items():
            (folder / name).mkdir(parents=True)
            (folder / name / "config.pbtxt").write_text(text)
            if name in MODELS:
                (folder / name / "1").mkdir()
                onnx.save(onnx.parser.parse_model(HEAD + MODELS[name]), folder / name / "1" / "model.onnx")
        (folder / "double" / "labels.txt").write_text("cat\ndog\n")
        return folder

    return write


def test_an_ensemble_of_three_steps_answers_a_client_of_triton(repository, tmp_path, start):
    triton = pytest.importorskip("tritonclient.http", reason="needs tritonclient[http]", exc_type=ImportError)
    found = import_triton(repository(chain=CHAIN))
    (tmp_path / "models.toml").write_text(found.toml())
    client = triton.InferenceServerClient(start(str(tmp_path / "models.toml")).url)
    left, right = np.float32([[3, 4], [5, 6]]), np.float32([[1, 1], [2, 3]])
    inputs = [triton.InferInput(name, [2, 2], "FP32") for name in ("LEFT", "RIGHT")]
    for each, array in zip(inputs, (left, right), strict=True):
        each.set_data_from_numpy(array)
    answer = client.infer("chain", inputs)
    np.testing.assert_array_equal(answer.as_numpy("TOTAL"), left + right)
    np.testing.assert_array_equal(answer.as_numpy("PRODUCT"), 2 * (left + right) * (left - right))
    data = triton.InferInput("x", [1, 2], "FP32")
    data.set_data_from_numpy(left[:1])
    wanted = [triton.InferRequestedOutput("y", class_count=1)]
    assert client.infer("double", [data], outputs=wanted).as_numpy("y").reshape(-1)[0] == b"8.000000:1:dog"
    client.close()


def test_a_step_that_is_an_ensemble_runs_its_steps(repository):
    outer = (
        'platform: "ensemble"\nmax_batch_size: 8\n'
        + ports("A B", "RESULT SUM")
        + "ensemble_scheduling { step [ "
        + ", ".join(
            [
                step("double", {"x": "A"}, {"y": "twice"}),
                step("chain", {"LEFT": "twice", "RIGHT": "B"}, {"PRODUCT": "t_rest", "TOTAL": "SUM"}),
                step("double", {"x": "t_rest"}, {"y": "RESULT"}),
            ]
        )
        + " ] }"
    )
    found = import_triton(repository(chain=CHAIN, outer=outer))
    assert not found.errors
    with hami.pipe(found.components["outer"]["source"]) as pipe:
        answer = pipe({"data": None, "A": np.float32([[3, 4]]), "B": np.float32([[1, 2]])})
    total, rest = np.float32([[7, 10]]), np.float32([[5, 6]])
    np.testing.assert_array_equal(answer["SUM"], total)
    np.testing.assert_array_equal(answer["RESULT"], 2 * (2 * total * rest))


def test_what_is_mapped_and_what_is_not_is_in_the_file(repository, tmp_path, capsys):
    folder = repository()
    output = tmp_path / "out" / "models.toml"
    assert import_triton_command(str(folder), str(output)) == 0
    text = output.read_text()
    assert f'model = "{folder / "both" / "1" / "model.onnx"}", instance_num = 2' in text
    assert 'max = 8, batching_timeout = "0.5ms"' in text
    assert set(read_components(output)) == {"both", "double", "join"}
    for note in (
        'join: "response_cache" is not mapped',
        'double: "dynamic_batching.preferred_batch_size" is not mapped; the batch size follows measured times, ',
        'double: "dynamic_batching.priority_levels" is not mapped; a request has a priority from 0 to 255 instead, ',
        'double: "dynamic_batching.default_queue_policy.timeout_action" is not mapped; a request whose timeout ',
    ):
        assert note in text
    assert 'join: "response_cache" is not mapped' in capsys.readouterr().err
    assert import_triton_command(str(folder), None, as_json=True) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed["models"]) == {"both", "double", "join"}
    assert 'join: "response_cache" is not mapped; keep answers in front of the server' in printed["not_mapped"]


@pytest.mark.parametrize(
    ("config", "note"),
    [
        ('platform: "tensorflow_savedmodel"', 'the platform "tensorflow_savedmodel" is not one of onnxruntime_onnx, '),
        (
            'platform: "ensemble"\n' + ports("A", "B") + "ensemble_scheduling { step [ "
            + step("double", {"x": "u"}, {"y": "v"}) + ", " + step("double", {"x": "v"}, {"y": "u"})
            + ", " + step("double", {"x": "u"}, {"y": "B"}) + " ] }",
            "its steps wait for each other: double -> double",
        ),
        (
            'platform: "ensemble"\n' + ports("A", "B") + "ensemble_scheduling { step [ "
            + step("double", {"x": "A"}, {"nope": "B"}) + " ] }",
            "\"double\" has the outputs ['y'], and its step names \"nope\"",
        ),
        ('name: "broken', 'broken/config.pbtxt" is not a model configuration of Triton: '),
        (ONNX, "has no folder of a version"),
        (CHAIN.replace('"LEFT"', '"LE:FT"'), 'the name "LE:FT" has a character that `map` does not allow'),
        (CHAIN.replace('"both"', '"lost"'), 'its step runs the model "lost", which the repository does not have'),
        (CHAIN.replace('"twice"', '"other"', 1), 'no step and no input sets the tensor "other"'),
        (CHAIN.replace('"both"', '"broken"'), "an ensemble runs itself: broken -> broken"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_mapped_is_left_out_with_the_reason(repository, config, note):
    folder = repository(broken=config)
    found = import_triton(folder)
    assert list(found.errors) == ["broken"]
    assert import_triton_command(str(folder), None, as_json=True) == 1
    assert sorted(found.components) == ["both", "double", "join"]
    (reason,) = [each for each in found.notes if each.startswith("broken: left out: ")]
    assert note in reason


def test_a_small_file_cannot_multiply_the_steps_of_an_ensemble(tmp_path):
    for level in range(40):
        steps = "" if level == 0 else ", ".join([step(f"e{level - 1}", {}, {})] * 2)
        (tmp_path / f"e{level}").mkdir()
        config = 'platform: "ensemble"\n' + f"ensemble_scheduling {{ step [ {steps} ] }}"
        (tmp_path / f"e{level}" / "config.pbtxt").write_text(config)
    assert "more than 1000 steps" in str(import_triton(tmp_path).errors["e39"])


@pytest.mark.parametrize("file", ["a\x1b[31m\0", "x" * 5000])
def test_a_name_of_a_stranger_leaves_the_others_readable(repository, tmp_path, file):
    folder = repository(broken=f'{ONNX} default_model_filename: "{file}"'.replace("\0", "\\000"))
    (folder / "broken" / "1").mkdir()
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe" / "config.pbtxt")  # a read of it would wait
    found = import_triton(folder)
    assert list(found.errors) == ["broken"]
    (tmp_path / "models.toml").write_text(found.toml())
    assert set(read_components(tmp_path / "models.toml")) == {"both", "double", "join"}


def test_serving_a_repository_of_triton_names_the_command(repository):
    with pytest.raises(
        hami.ConfigError, match=r"is a model repository of Triton: run `hami import-triton .*`, and serve"
    ):
        read_components(repository())


def test_a_folder_without_a_configuration_is_an_error(tmp_path):
    with pytest.raises(hami.ConfigError, match=r"no folder in it has a config\.pbtxt"):
        import_triton(tmp_path)
