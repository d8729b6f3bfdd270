"""One rule for all engines: one table of requests runs over OnnxTensor, OpenvinoTensor, TorchModel and TensorrtTensor.

Each engine computes y = 2 * x for float32 [n, 2], from 1 to 4 rows. TensorrtTensor runs with the fake library.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hami
import numpy as np
import pytest

ROWS = [[1, 2], [3, 4]]
MAX_ROWS = 4


def onnx_file(folder: Path) -> Path:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    constant = onnx.numpy_helper.from_array(np.array(2, np.float32), "two")
    port = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 2]) for name in ("x", "y")]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Mul", ["x", "two"], ["y"])], "double", port[:1], port[1:], [constant]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "double.onnx")
    return folder / "double.onnx"


def exported_file(folder: Path) -> Path:
    import torch

    class Double(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    rows = torch.export.Dim("rows", min=1, max=MAX_ROWS)
    program = torch.export.export(Double(), (torch.ones(2, 2),), dynamic_shapes=[{0: rows}])
    torch.export.save(program, folder / "double.pt2")
    return folder / "double.pt2"


ENGINES = {
    "OnnxTensor": lambda request: {"model": onnx_file(request.getfixturevalue("tmp_path")), "cast": "safe"},
    "OpenvinoTensor": lambda request: {"model": onnx_file(request.getfixturevalue("tmp_path")), "cast": "safe"},
    "TorchModel": lambda request: {
        "model": exported_file(request.getfixturevalue("tmp_path")),
        "device": "cpu",
        "cast": "safe",
    },
    "TensorrtTensor": lambda request: {"model": request.getfixturevalue("engine")()},
}
PACKAGES = {
    "OnnxTensor": ("hami_onnx",),
    "OpenvinoTensor": ("hami_openvino",),
    "TorchModel": ("hami_torch", "torch"),
    "TensorrtTensor": (),
}


@pytest.fixture(params=list(ENGINES))
def name(request) -> str:
    for package in PACKAGES[request.param]:
        if not find_spec(package):
            pytest.skip(f"{request.param} needs {package}, which is not installed")
    return request.param


@pytest.fixture
def opened(name, request) -> Any:
    """A pipe of one engine, which forms batches of up to four items."""
    config = ENGINES[name](request)
    node = {
        "backend": name,
        "max": MAX_ROWS,
        "batching": "greedy",
        **{key: str(value) for key, value in config.items()},
    }
    open_pipe = request.getfixturevalue("open_pipe") if name == "TensorrtTensor" else hami.pipe
    with open_pipe(node) as pipe:
        yield pipe


def array(values: Any, dtype: str = "float32") -> Any:
    return np.array(values, dtype)


def tensor_of_torch() -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return torch.tensor(ROWS, dtype=torch.float32)


TAKEN: dict[str, tuple[Callable[[], dict[str, Any]], Any]] = {
    "rows": (lambda: {"data": array(ROWS), "request_size": 2}, [[2, 4], [6, 8]]),
    "rows without request_size": (lambda: {"data": array(ROWS)}, [[2, 4], [6, 8]]),
    "one row": (lambda: {"data": array(ROWS[:1])}, [[2, 4]]),
    "a row without the batch axis": (lambda: {"data": array(ROWS[0])}, [2, 4]),
    "the same with request_size": (lambda: {"data": array(ROWS[0]), "request_size": 1}, [2, 4]),
    "uint8": (lambda: {"data": array(ROWS, "uint8")}, [[2, 4], [6, 8]]),
    "uint8 without the batch axis": (lambda: {"data": array(ROWS[1], "uint8")}, [6, 8]),
    "bool": (lambda: {"data": array([[True, False]], "bool")}, [[2, 0]]),
    "int16": (lambda: {"data": array([[-1, 300]], "int16")}, [[-2, 600]]),
    "float16": (lambda: {"data": array(ROWS, "float16")}, [[2, 4], [6, 8]]),
    "strided": (lambda: {"data": array(ROWS).T}, [[2, 6], [4, 8]]),
    "a list": (lambda: {"data": [array(ROWS)]}, [[2, 4], [6, 8]]),
    "a dict": (lambda: {"data": {"x": array(ROWS)}}, [[2, 4], [6, 8]]),
    "a dict without the batch axis": (lambda: {"data": {"x": array(ROWS[0], "uint8")}}, [2, 4]),
    "a tensor of torch": (lambda: {"data": tensor_of_torch()}, [[2, 4], [6, 8]]),
    "as many rows as the engine takes": (lambda: {"data": array(ROWS + ROWS)}, [[2, 4], [6, 8]] * 2),
}

# The error, and what its first line names: both types, or both numbers of rows.
REFUSED: dict[str, tuple[Callable[[], dict[str, Any]], type[hami.Error], tuple[str, ...]]] = {
    "float64": (lambda: {"data": array(ROWS, "float64")}, hami.DataTypeError, ("float64", "float32")),
    "int32": (lambda: {"data": array(ROWS, "int32")}, hami.DataTypeError, ("int32", "float32")),
    "int64": (lambda: {"data": array(ROWS[0], "int64")}, hami.DataTypeError, ("int64", "float32")),
    "another request_size": (lambda: {"data": array(ROWS), "request_size": 3}, hami.RequestError, ("2", "3")),
    "a row with another request_size": (
        lambda: {"data": array(ROWS[0]), "request_size": 2},
        hami.RequestError,
        ("1", "2"),
    ),
    "no data": (lambda: {"data": "text"}, hami.DataTypeError, ("got ",)),  # "str" or "text"
}


def values(result: Any) -> Any:
    """Return the numbers of a result of any engine; they are float32."""
    found = hami.to_numpy(result)
    assert found.dtype == np.float32
    return found.tolist()


@pytest.mark.parametrize("case", list(TAKEN))
def test_every_engine_takes(opened, case):
    request, expected = TAKEN[case]
    given = request()
    assert values(opened(given)["result"]) == expected
    assert set(given) == {*request(), "result"}  # no key for internal use is left


@pytest.mark.parametrize("case", list(REFUSED))
def test_every_engine_refuses(opened, case):
    request, kind, words = REFUSED[case]
    with pytest.raises(kind) as raised:
        opened(request())
    line = str(raised.value).splitlines()[0]
    assert all(word in line for word in words), line
    assert values(opened({"data": array(ROWS)})["result"]) == [[2, 4], [6, 8]]


def test_every_engine_runs_requests_of_all_forms_in_one_batch(opened):
    cases = ["one row", "a row without the batch axis", "uint8 without the batch axis", "float16", "rows", "a dict"]
    requests = opened([TAKEN[case][0]() for case in cases])
    assert [values(request["result"]) for request in requests] == [TAKEN[case][1] for case in cases]


def test_a_request_that_is_refused_does_not_fail_its_batch_in_any_engine(opened):
    with pytest.raises(hami.BatchError) as raised:
        opened(requests := [{"data": array(ROWS)}, {"data": array(ROWS, "float64")}, {"data": array(ROWS[0])}])
    assert [index for index, _ in raised.value.errors] == [1]
    assert [values(requests[index]["result"]) for index in (0, 2)] == [[[2, 4], [6, 8]], [2, 4]]


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float64"])
def test_fix_tensor_in_front_of_every_engine_casts_to_its_type(name, request, dtype):
    """Also float64, which the engine itself refuses; the result has the batch axis that FixTensor added."""
    if name == "TensorrtTensor":
        pytest.skip("it contains FixTensor; test_tensorrt_tensor.py has the expression with FixTensor in front")
    config = {key: str(value) for key, value in ENGINES[name](request).items()}
    with hami.pipe({"backend": f"S[FixTensor,{name}]", **config}) as pipe:
        assert values(pipe({"data": array(ROWS, dtype)})["result"]) == [[2, 4], [6, 8]]
        assert values(pipe({"data": array(ROWS[0], dtype)})["result"]) == [[2, 4]]
