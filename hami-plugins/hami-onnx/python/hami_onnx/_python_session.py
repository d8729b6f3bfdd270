"""python_model: a model that runs in a session of the package onnxruntime, which takes strings, sequences and maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnxruntime

from hami_onnx._model import Model
from hami_onnx._ort_values import run_with_values
from hami_onnx._specs import Specs, specs_of


def python_model(session: onnxruntime.InferenceSession, backend: str, memory: str) -> Model:
    """Return the model of a session that was opened with this `memory`.

    Raises:
        hami.ConfigError: NumPy has no type of an input or output, with or without the package ml_dtypes.
    """
    specs = specs_of(session, backend)
    return Model(session, specs, _run_of(session, specs, memory))


def _run_of(session: onnxruntime.InferenceSession, specs: Specs, memory: str) -> Callable[[dict[str, Any]], list[Any]]:
    options = onnxruntime.RunOptions()
    options.log_severity_level = 4  # the failed requests carry the error of a run; do not log it to stderr too
    if memory == "shrink":
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    inputs = (*specs.inputs, *specs.optional)
    if any(spec.onnx_type for spec in (*inputs, *specs.outputs)):
        return lambda feeds: run_with_values(session, feeds, inputs, specs.outputs, options)
    names = [spec.name for spec in specs.outputs]
    return lambda feeds: list(session.run(names, feeds, options))
