"""LoadOnnx and OnnxInferTensor: one backend opens a model and another one in the same instance runs it."""

from __future__ import annotations

import hami
import numpy as np
import pytest


def test_onnx_infer_tensor_runs_the_model_of_load_onnx(pipe, models):
    parts = pipe("IoC[LoadOnnx, OnnxInferTensor; OnnxInferTensor]", model=str(models.double()))
    assert parts({"data": np.ones((2, 2), np.float32)})["result"].tolist() == [[2, 2], [2, 2]]


def test_model_loader_chooses_load_onnx_by_the_suffix_of_the_model(pipe, models):
    parts = pipe("IoC[ModelLoader[(.onnx)LoadOnnx], OnnxInferTensor; OnnxInferTensor]", model=str(models.double()))
    assert parts({"data": np.ones((1, 2), np.float32)})["result"].tolist() == [[2, 2]]


def test_the_error_for_a_missing_loader_says_how_to_add_it():
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "OnnxInferTensor"})
    assert (
        "OnnxInferTensor: no model is open; put LoadOnnx before it, "
        "as in IoC[LoadOnnx, OnnxInferTensor; OnnxInferTensor], or use OnnxTensor"
    ) in str(error.value)
