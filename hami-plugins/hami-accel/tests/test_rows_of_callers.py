"""Callers never share a task: a model that mixes its rows gives each caller what it gives alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import hami
import numpy as np
import onnx
import onnx.parser
import pytest

MIXES = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 4] x) => (float[2, 4] y) {
    q, scale, zero = DynamicQuantizeLinear (x)
    d = DequantizeLinear (q, scale, zero)
    y = Softmax <axis = 0> (d)
}"""


@pytest.mark.parametrize("instances", [1, 3])
def test_callers_of_a_model_that_mixes_rows_get_what_they_get_alone(tmp_path, instances):
    path = tmp_path / "mixes.onnx"
    onnx.save(onnx.parser.parse_model(MIXES), path)
    generator = np.random.default_rng(0)
    data = [np.float32(generator.standard_normal((2, 4)) * 10.0 ** (i % 3)) for i in range(24)]
    with hami.pipe({"backend": "AccelTensor", "model": str(path), "instance_num": instances}) as pipe:
        alone = [pipe({"data": each})["result"] for each in data]
        with ThreadPoolExecutor(8) as threads:
            joined = list(threads.map(lambda each: pipe({"data": each})["result"], data))
        requests = pipe([{"data": each} for each in data])
    for own, one, other in zip(alone, joined, requests, strict=True):
        assert np.array_equal(one, own)
        assert np.array_equal(other["result"], own)
