"""Models that packages ship: the proof finds their batch axis in a few milliseconds, and the rows are independent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from row_runs import difference

from hami_model_check.rows import prove_rows

rapidocr = pytest.importorskip("rapidocr", reason="the package rapidocr, which has models, is not installed")
FILES = sorted(Path(rapidocr.__file__).parent.rglob("*.onnx"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("engine", ["onnx", "openvino"])
def test_the_models_of_rapidocr_can_be_joined(path, engine) -> None:
    proof = prove_rows(path, backend="Test", engine=engine)
    axes = [*proof.input_axes.values(), *proof.output_axes.values()]
    assert (proof.verdict, axes) == ("independent", [0, 0])
    if engine == "onnx":
        (name,) = proof.input_axes
        given = {name: np.random.default_rng(1).standard_normal((3, 3, 48, 192), np.float32)}
        assert difference(onnx.load(path), given, proof.input_axes, proof, [0, 4, 2]) is None


def test_there_are_models() -> None:
    assert len(FILES) >= 3
