"""The parameter profile: when each operator ran, on the clock of timelines."""

from __future__ import annotations

import json
import threading
import time

import hami
import numpy as np
import pytest


def test_operators_of_all_runs_are_in_the_file_with_the_moment_of_the_start(models, tmp_path):
    file = tmp_path / "engine.json"
    begun = time.monotonic_ns()
    with hami.pipe({"backend": "OnnxTensor", "model": str(models.double(width=2)), "profile": str(file)}) as pipe:
        for _ in range(3):
            pipe({"data": np.float32([[1, 2]])})
    ended = time.monotonic_ns()
    clock, *events = json.loads(file.read_text())
    runs = [event for event in events if event["name"] == "model_run"]
    operators = [event for event in events if event["name"].endswith("_kernel_time")]
    assert (len(runs), len(operators)) == (3, 3)
    assert runs[0]["tid"] == threading.get_native_id()  # a lone caller runs its batch
    moments = [clock["args"]["monotonic_ns"] + 1000 * event["ts"] for event in runs]
    assert begun < moments[0] <= moments[-1] < ended
    assert [each.name for each in tmp_path.iterdir() if "engine" in each.name] == ["engine.json"]


def test_a_profile_that_cannot_be_written_is_an_error_when_the_pipe_is_built(models, tmp_path):
    path = tmp_path / "none" / "engine.json"
    with pytest.raises(hami.ConfigError, match="cannot be written: No such file or directory"):
        hami.pipe({"backend": "OnnxTensor", "model": str(models.double()), "profile": str(path)})


def test_a_model_that_runs_in_python_has_no_profile(models, tmp_path):
    with pytest.raises(hami.ConfigError, match="needs a model that runs in C\\+\\+"):
        hami.pipe({"backend": "OnnxTensor", "model": str(models.words()), "profile": str(tmp_path / "engine.json")})
