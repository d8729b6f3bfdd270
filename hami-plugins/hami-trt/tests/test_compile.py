"""`hami compile`, as it is called in a shell, with the real TensorRT-RTX."""

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


def compiled(*arguments: str) -> dict:
    """What `hami compile --library tensorrt-rtx … --json` tells."""
    return json.loads(told(0, *arguments, "--json")[0])


def told(status: int, *arguments: str) -> tuple[str, str]:
    done = subprocess.run(
        [*HAMI, "compile", "--library", "tensorrt-rtx", *arguments], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


def test_an_engine_is_built_once_beside_its_model(model):
    first, nothing = told(0, "model.onnx", "--max", "4")
    assert first.startswith("model.trt: built in ")
    assert nothing == ""
    assert told(0, "model.onnx", "--max", "4") == (
        "model.trt: nothing to do, it is of this model and these options\n",
        "",
    )


def test_all_that_decides_an_engine_makes_another_one(model, tmp_path):
    """One folder, one engine for each recipe; what was built before is found again."""
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
    files = [compiled("model.onnx", "--output", "engines", *call)["engine"] for call in calls]
    models.convolution(model, seed=1)
    files.append(compiled("model.onnx", "--output", "engines", "--max", "4")["engine"])
    assert len(set(files)) == len(files)
    again = compiled("model.onnx", "--output", "engines", "--max", "4")
    assert (again["engine"], again["built"]) == (files[-1], False)


def test_json_tells_what_the_engine_was_made_of(model):
    answer = compiled("model.onnx", "--max", "4", "--compute-capability", "8.9, 12.0", "--output", "e/x.trt")
    assert answer["engine"] == "e/x.trt"
    assert answer["built"] is True
    assert answer["bytes"] == Path("e/x.trt").stat().st_size
    assert answer["shapes"] == {"x": {"min": "1x3x8x8", "opt": "4x3x8x8", "max": "4x3x8x8"}}
    assert answer["recipe"]["gpu"] == ["12.0", "8.9"]
    assert answer["recipe"]["version"] == RTX.version


def test_eight_processes_build_once(model):
    command = [*HAMI, "compile", "--library", "tensorrt-rtx", "model.onnx", "--max", "4", "--json"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    answers = [json.loads(process.communicate()[0]) for process in processes]
    assert [process.returncode for process in processes] == [0] * 8
    assert sorted(answer["built"] for answer in answers) == [False] * 7 + [True]
    assert len({json.dumps(answer["recipe"]) for answer in answers}) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.onnx"], 'error: hami compile: there is no model file "none.onnx"'),
        (["model.onnx", "--max", "four"], 'error: hami compile: "max" of input "x" ?x3x8x8 (? is free) got "four"'),
        (
            ["model.onnx", "--output", "model.onnx/x.trt"],
            'error: hami compile: the engine cannot be kept as "model.onnx',
        ),
        (
            ["model.onnx", "--compute-capability", "9.0"],
            f'error: hami compile: {RTX} cannot build for compute capability "9.0"; it can for 7.5, 8.0, ',
        ),
    ],
)
def test_what_is_wrong_is_told_in_a_line(model, arguments, message):
    nothing, error = told(1, *arguments)
    assert nothing == ""
    assert error.startswith(message)
    assert "Traceback" not in error
    assert not Path("model.trt").exists()


def test_hami_lists_the_command_among_its_own(model):
    done = subprocess.run([*HAMI, "compile", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "Build the TensorRT engine of an ONNX model ahead of time." in done.stdout
