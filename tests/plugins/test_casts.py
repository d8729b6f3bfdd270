"""Data become what a model declares, as the key `cast` allows: the same rules for each engine that is installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hami
import numpy as np
import pytest

ENGINES = {"OnnxTensor": "onnxruntime", "OpenvinoTensor": "openvino", "TorchModel": "torch"}
GRAPH = """<ir_version: 9, opset_import: ["" : 17]> twice ({dtype}[n, 2] x) => ({dtype}[n, 2] y) {{ y = Add(x, x) }}"""
ONNX_NAMES = {"float32": "float", "int32": "int32", "float16": "float16"}


@pytest.fixture(scope="module", params=ENGINES)
def twice(request, tmp_path_factory) -> Iterator[Any]:
    """twice(dtype, cast) returns a function from data to the result of a model with one input [n, 2]."""
    name = request.param
    if find_spec(ENGINES[name]) is None:
        pytest.skip(f"{ENGINES[name]} is not installed")
    opened: dict[tuple[str, Any], hami.Pipe] = {}

    def write(dtype: str) -> Path:
        path = tmp_path_factory.mktemp("model") / ("m.pt2" if name == "TorchModel" else "m.onnx")
        if name == "TorchModel":
            import torch

            module = type("Twice", (torch.nn.Module,), {"forward": lambda self, x: x + x})()
            shapes = {"x": {0: torch.export.Dim("batch")}}
            example = (torch.zeros(2, 2, dtype=getattr(torch, dtype)),)
            torch.export.save(torch.export.export(module, example, dynamic_shapes=shapes), path)
        else:
            onnx = pytest.importorskip("onnx")
            onnx.save(onnx.parser.parse_model(GRAPH.format(dtype=ONNX_NAMES[dtype])), path)
        return path

    def run(dtype: str, cast: Any, data: Any) -> Any:
        if (dtype, cast) not in opened:
            own = {"device": "cpu"} if name == "TorchModel" else {}
            node = {"backend": name, "model": str(write(dtype)), "cast": cast, **own}
            opened[dtype, cast] = hami.pipe(node)
        result = opened[dtype, cast]({"data": data})["result"]
        return hami.to_numpy(result.detach() if hasattr(result, "detach") else result)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield run
    for pipe in opened.values():
        pipe.close()


@pytest.mark.parametrize(
    ("dtype", "data", "expected"),
    [
        ("float32", [[1.5, 2]], [[3, 4]]),
        ("float32", [[1, 2], [3, 4]], [[2, 4], [6, 8]]),
        ("float32", [1, 2.5], [2, 5]),
        ("float32", [[True, False]], [[2, 0]]),
        ("float32", np.array([[0.1, -3]]), [[2 * np.float32(0.1), -6]]),
        ("float32", np.array([[2**24, -5]]), [[2**25, -10]]),
        ("float32", np.array([[1, 2], [3, 4]]).T, [[2, 6], [4, 8]]),
        ("float16", np.array([[2049, 0.1]]), [[4096, 2 * np.float16(0.1)]]),
        ("float16", np.array([[1 + 2**-11 + 2**-40, 1 + 2**-11]]), [[2 + 2**-9, 2]]),
        ("int32", [[1.0, -2.0]], [[2, -4]]),
        ("int32", np.array([[7, -8]]), [[14, -16]]),
        ("int32", np.array([[7, 8]], np.uint64), [[14, 16]]),
    ],
)
def test_exact_converts_integers_that_the_type_has_and_rounds_floats(twice, dtype, data, expected):
    result = twice(dtype, "exact", data)
    assert (result.dtype, result.tolist()) == (np.dtype(dtype), np.asarray(expected, dtype).tolist())


@pytest.mark.parametrize(
    ("dtype", "data", "message"),
    [
        (
            "float32",
            [[1e39, 0]],
            r'input "x".* expects float32, got float64 with the value 1e\+39, which float32 does not',
        ),
        ("float32", np.array([[2**24 + 1, 0]]), "expects float32, got int64 with the value 16777217"),
        ("float32", [[1, 2], [3]], "a list whose parts have different lengths or types"),
        ("float16", np.array([[65520.0, 0]]), "expects float16, got float64 with the value 65520"),
        ("int32", [[1.5, 0]], "expects int32, got float64 with the value 1.5"),
        ("int32", np.array([[np.nan, 0]]), "with the value nan"),
        ("int32", np.array([[2**31, 0]]), "expects int32, got int64 with the value 2147483648"),
        ("int32", np.array([[2**64 - 1, 0]], np.uint64), "with the value 18446744073709551615"),
    ],
)
def test_a_loss_above_rounding_names_the_value_and_the_next_request_is_served(twice, dtype, data, message):
    with pytest.raises(hami.DataTypeError, match=message):
        twice(dtype, "exact", data)
    assert twice(dtype, "exact", [[1, 2]]).tolist() == [[2, 4]]


def test_safe_converts_only_what_loses_no_value_of_the_type(twice):
    assert twice("float32", "safe", np.array([[1, 2]], np.uint8)).tolist() == [[2, 4]]
    assert twice("float32", "safe", [[1, 2]]).tolist() == [[2, 4]]
    for dtype in (np.float64, np.int64):
        with pytest.raises(hami.DataTypeError, match=f"expects float32, got {np.dtype(dtype)}, which cannot be"):
            twice("float32", "safe", np.array([[1, 2]], dtype))


def test_false_converts_nothing(twice):
    assert twice("float32", False, np.array([[1, 2]], np.float32)).tolist() == [[2, 4]]
    for data in (np.array([[1, 2]], np.uint8), np.array([[1.0, 2.0]]), [[1, 2]]):
        with pytest.raises(hami.DataTypeError, match="float32"):
            twice("float32", False, data)


def test_another_cast_is_refused_when_the_pipe_is_built(twice):
    with pytest.raises(hami.ConfigError, match=r'"cast" is "exact", "safe" or false, got .loose'):
        twice("float32", "loose", [[1, 2]])
