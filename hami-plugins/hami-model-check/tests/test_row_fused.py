"""Operators of com.microsoft that fused models contain: independent ones are equal alone and together."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto
from row_models import ROWS, floats, ints, model, op, prove
from row_runs import difference, session

MS = "com.microsoft"
WORDS = {"x": [ROWS, 5, 8]}
FLOAT = {"s": np.float32(0.05), "z": np.uint8(128)}
QUANTISED = [op("QuantizeLinear", "x s z", "q")]
BYTES = np.random.default_rng(3).integers(0, 255, (8, 6)).astype(np.uint8)

CASES = {
    "Gelu": ([op("Gelu", "x", domain=MS)], {}),
    "BiasGelu": ([op("BiasGelu", "x b", domain=MS)], {"b": floats(8)}),
    "FastGelu": ([op("FastGelu", "x b", domain=MS)], {"b": floats(8)}),
    "QuickGelu": ([op("QuickGelu", "x", domain=MS, alpha=1.5)], {}),
    "FusedMatMul": ([op("FusedMatMul", "x w", domain=MS, transB=1, alpha=0.5)], {"w": floats(6, 8)}),
    "attention of FusedMatMul": (
        [op("FusedMatMul", "x x", "s", domain=MS, transB=1), op("Softmax", "s", "p"), op("MatMul", "p x")],
        {},
    ),
    "SkipLayerNormalization": (
        [op("SkipLayerNormalization", "x skip w b", domain=MS)],
        {"skip": floats(1, 5, 8), "w": floats(8), "b": floats(8)},
    ),
    "SkipSimplifiedLayerNormalization": (
        [op("SkipSimplifiedLayerNormalization", "x x w", "y - - z", domain=MS)],
        {"w": floats(8)},
    ),
    "Attention": (
        [op("Attention", "x w b", "y", domain=MS, num_heads=2)],
        {"w": floats(8, 24), "b": floats(24)},
    ),
    "Attention with a mask of rows": (
        [
            op("ReduceMax", "x", "m", axes=[2], keepdims=0),
            op("Greater", "m low", "g"),
            op("Cast", "g", "mask", to=TensorProto.INT32),
            op("Attention", "x w b mask", "y", domain=MS, num_heads=2),
        ],
        {"w": floats(8, 24), "b": floats(24), "low": np.float32(-100)},
    ),
    "MultiHeadAttention": ([op("MultiHeadAttention", "x x x", domain=MS, num_heads=2)], {}),
    "MultiHeadAttention with a bias": (
        [op("MultiHeadAttention", "x x x - - bias", domain=MS, num_heads=2)],
        {"bias": floats(1, 2, 5, 5)},
    ),
    "MatMulIntegerToFloat": (
        [*QUANTISED, op("MatMulIntegerToFloat", "q w s s z", domain=MS)],
        {**FLOAT, "w": BYTES},
    ),
    "MatMulInteger": ([*QUANTISED, op("MatMulInteger", "q w z", "i"), op("Cast", "i", to=1)], {**FLOAT, "w": BYTES}),
    "QLinearMatMul": (
        [*QUANTISED, op("QLinearMatMul", "q s z w s z s z", "r"), op("DequantizeLinear", "r s z")],
        {**FLOAT, "w": BYTES},
    ),
    "MatMulNBits": (
        [op("MatMulNBits", "x w scales", domain=MS, K=8, N=6, bits=4, block_size=16)],
        {"w": np.full((6, 1, 8), 0x5A, np.uint8), "scales": floats(6)},
    ),
    "MatMulNBits with integer arithmetic": (
        [op("MatMulNBits", "x w scales", domain=MS, K=8, N=6, bits=4, block_size=16, accuracy_level=4)],
        {"w": np.full((6, 1, 8), 0x5A, np.uint8), "scales": floats(6)},
    ),
    "RotaryEmbedding": (
        [
            op("Unsqueeze", "x one", "heads"),
            op("RotaryEmbedding", "heads place cos sin", domain=MS),
        ],
        {"one": ints(1), "place": ints(0), "cos": floats(9, 4), "sin": floats(9, 4)},
    ),
    "EmbedLayerNormalization": (
        [
            op("ArgMax", "x", "i", axis=2, keepdims=0),
            op("Cast", "i", "words", to=TensorProto.INT32),
            op("EmbedLayerNormalization", "words - e p - w b", "y mask", domain=MS),
        ],
        {"e": floats(8, 4), "p": floats(5, 4), "w": floats(4), "b": floats(4)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_of_a_fused_operator_are_equal_alone_and_together(name, tmp_path) -> None:
    nodes, constants = CASES[name]
    built = model(*nodes, inputs=WORDS, constants=constants, opset=17)
    proof = prove(tmp_path, built)
    assert (proof.verdict, proof.output_axes) == ("independent", {"y": 0}), proof.reason
    feeds = {"x": floats(4, 5, 8)}
    session(built).run(None, feeds)  # it runs
    assert difference(built, feeds, {"x": 0}, proof, [3, 6, 0, 13]) is None


@pytest.mark.parametrize("rows", [2, 4])
def test_a_dynamic_scale_of_all_rows_really_changes_them(rows, tmp_path) -> None:
    """What the proof refuses: the answer to the first row depends on the others."""
    built = model(op("DynamicQuantizeLinear", "x", "q s z"), op("DequantizeLinear", "q s z"))
    assert prove(tmp_path, built).quantized
    runs = session(built)
    x = np.float32([[0.1, 0.2, 0.3, 0.4]] + [[100, -100, 50, 25]] * (rows - 1))
    alone, together = runs.run(None, {"x": x[:1]})[0], runs.run(None, {"x": x})[0]
    assert np.abs(alone - together[:1]).max() > 0.3
