"""`hami compile` as a command, with the real TensorRT-RTX."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import models
import pytest
from building import RTX, needs_rtx

pytestmark = needs_rtx
HAMI = [sys.executable, "-m", "hami"]


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return models.convolution(Path("model.onnx"))


def compile_to_json(*arguments: str) -> dict:
    """Return the output of `hami compile --library tensorrt-rtx … --json`."""
    return json.loads(run(0, *arguments, "--json")[0])


def run(status: int, *arguments: str) -> tuple[str, str]:
    """Run `hami compile` and return its standard output and standard error."""
    done = subprocess.run(
        [*HAMI, "compile", "--library", "tensorrt-rtx", *arguments], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


def test_an_engine_is_built_once_beside_its_model(model):
    output, error = run(0, "model.onnx", "--max", "4")
    assert output.startswith("model.trt: built in ")
    assert error == ""
    assert run(0, "model.onnx", "--max", "4") == (
        "model.trt: up to date\n",
        "",
    )


def test_each_option_gives_another_engine(model, tmp_path):
    """The folder has one engine for each recipe, and finds an earlier one again."""
    calls = [
        ["--max", "4"],
        ["--max", "8"],
        ["--max", "8", "--min", "2"],
        ["--max", "8", "--opt", "2"],
        ["--max", "4", "--instance-num", "2"],
        ["--max", "4", "--precision", "fp32"],
        ["--max", "4", "--mean", "1,2,3"],
        ["--max", "4", "--std", "2"],
        ["--max", "4", "--workspace", "16777216"],
        ["--max", "4", "--optimization-level", "1"],
        ["--max", "4", "--compute-capability", "8.9"],
    ]
    files = [compile_to_json("model.onnx", "--output", "engines", *call)["engine"] for call in calls]
    models.convolution(model, seed=1)
    files.append(compile_to_json("model.onnx", "--output", "engines", "--max", "4")["engine"])
    assert len(set(files)) == len(files)
    again = compile_to_json("model.onnx", "--output", "engines", "--max", "4")
    assert (again["engine"], again["built"]) == (files[-1], False)


def test_the_json_output_has_the_recipe(model):
    output = compile_to_json("model.onnx", "--max", "4", "--compute-capability", "8.9, 12.0", "--output", "e/x.trt")
    assert output["engine"] == "e/x.trt"
    assert output["built"] is True
    assert output["bytes"] == Path("e/x.trt").stat().st_size
    assert output["shapes"] == {"x": {"min": "1x3x8x8", "opt": "4x3x8x8", "max": "4x3x8x8"}}
    assert output["recipe"]["gpu"] == ["12.0", "8.9"]
    assert output["recipe"]["version"] == RTX.version


def test_eight_processes_build_once(model):
    command = [*HAMI, "compile", "--library", "tensorrt-rtx", "model.onnx", "--max", "4", "--json"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    outputs = [json.loads(process.communicate()[0]) for process in processes]
    assert [process.returncode for process in processes] == [0] * 8
    assert sorted(output["built"] for output in outputs) == [False] * 7 + [True]
    assert len({json.dumps(output["recipe"]) for output in outputs}) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.onnx"], 'error: hami compile: model file "none.onnx" does not exist'),
        (
            ["model.onnx", "--max", "four"],
            'error: hami compile: "max" must match input "x" ?x3x8x8 (? is any size), got "four"',
        ),
        (
            ["model.onnx", "--output", "model.onnx/x.trt"],
            'error: hami compile: cannot write the engine to "model.onnx',
        ),
        (
            ["model.onnx", "--compute-capability", "9.0"],
            f'error: hami compile: {RTX} cannot build for compute capability "9.0"; supported are 7.5, 8.0, ',
        ),
    ],
)
def test_an_error_is_one_line_without_a_traceback(model, arguments, message):
    output, error = run(1, *arguments)
    assert output == ""
    assert error.startswith(message)
    assert "Traceback" not in error
    assert not Path("model.trt").exists()


def test_the_command_has_a_help_text(model):
    done = subprocess.run([*HAMI, "compile", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "Build the TensorRT engine of an ONNX model ahead of time." in done.stdout
