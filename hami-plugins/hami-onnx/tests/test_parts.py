"""LoadOnnx and OnnxInferTensor: a model opened by one backend and run by another of the same instance."""

from __future__ import annotations

import hami
import numpy as np
import pytest


def test_a_loaded_model_is_run_by_the_inferer(pipe, models):
    parts = pipe("IoC[LoadOnnx, OnnxInferTensor; OnnxInferTensor]", model=str(models.double()))
    assert parts({"data": np.ones((2, 2), np.float32)})["result"].tolist() == [[2, 2], [2, 2]]


def test_a_loader_is_chosen_by_the_suffix_of_the_model(pipe, models):
    parts = pipe("IoC[ModelLoader[(.onnx)LoadOnnx], OnnxInferTensor; OnnxInferTensor]", model=str(models.double()))
    assert parts({"data": np.ones((1, 2), np.float32)})["result"].tolist() == [[2, 2]]


def test_an_inferer_without_a_model_says_what_to_put_before_it():
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "OnnxInferTensor"})
    assert (
        "OnnxInferTensor: no model was opened before it; put LoadOnnx first, "
        "as in IoC[LoadOnnx, OnnxInferTensor; OnnxInferTensor], or use OnnxTensor"
    ) in str(error.value)
