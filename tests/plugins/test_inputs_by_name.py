"""Inputs and outputs of a model as keys of a request: the same rules for each engine that is installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hami
import numpy as np
import pytest
from numpy.typing import NDArray

ENGINES = {
    "OnnxTensor": "onnxruntime",
    "OpenvinoTensor": "openvino",
    "TorchModel": "torch",
    "TensorrtTensor": "hami_trt",  # on the fakes of its library and of the driver
}
PLUGINS = Path(__file__).resolve().parents[2] / "hami-plugins"
GRAPH = """<ir_version: 9, opset_import: ["" : 17]>
two (float[n, 2] {a}, float[n, 2] {b}) => (float[n, 2] total, float[n, 2] rest)
{{ total = Add({a}, {b}) rest = Sub({a}, {b}) }}"""


def array(*values: float) -> NDArray[np.float32]:
    return np.array([values], np.float32)


def write_onnx(folder: Path, a: str, b: str) -> Path:
    onnx = pytest.importorskip("onnx")
    onnx.save(onnx.parser.parse_model(GRAPH.format(a=a, b=b)), folder / "two.onnx")
    return folder / "two.onnx"


def write_torch(folder: Path, a: str, b: str) -> Path:
    import torch

    scope: dict[str, Any] = {}
    exec(f"def forward(self, {a}, {b}):\n    return {{'total': {a} + {b}, 'rest': {a} - {b}}}", scope)
    module = type("Two", (torch.nn.Module,), {"forward": scope["forward"]})()
    batch = torch.export.Dim("batch")
    example = (torch.zeros(2, 2), torch.zeros(2, 2))
    torch.export.save(
        torch.export.export(module, example, dynamic_shapes={a: {0: batch}, b: {0: batch}}), folder / "two.pt2"
    )
    return folder / "two.pt2"


def write_engine(folder: Path, a: str, b: str) -> Path:
    import fake_tensorrt as fake

    fake.PROGRAMS[f"{a} {b}"] = fake.Program(
        lambda given: {"total": given[a] + given[b], "rest": given[a] - given[b]},
        lambda given: {"total": given[a], "rest": given[a]},
    )
    tensors = {**{name: fake.tensor("INPUT") for name in (a, b)}, "total": fake.tensor("OUTPUT")}
    tensors["rest"] = fake.tensor("OUTPUT")
    profile = {name: [(1, 2), (2, 2), (8, 2)] for name in (a, b)}
    path = folder / "two.engine"
    path.write_bytes(fake.serialized(tensors=tensors, profiles=[profile], program=f"{a} {b}"))
    return path


WRITERS = {"TorchModel": write_torch, "TensorrtTensor": write_engine}


def fake_tensorrt(patch: pytest.MonkeyPatch) -> None:
    """Let hami-trt find a fake of its library, on a fake driver whose device memory is that of the CPU."""
    for plugin in ("hami-trt", "hami-cuda"):
        patch.syspath_prepend(str(PLUGINS / plugin / "tests"))
    import fake_tensorrt as fake
    from hami_trt import _tensorrt
    from native import fake_driver

    driver = fake_driver()
    if driver is None:
        pytest.skip("this machine has an NVIDIA driver; the fake one cannot be used")
    library = _tensorrt.Library("tensorrt", fake.Fake(driver=driver))
    patch.setattr(_tensorrt, "require_library", lambda: None)
    patch.setattr(_tensorrt, "_load", lambda name: library)


@pytest.fixture(scope="module", params=ENGINES)
def engine(request, tmp_path_factory) -> Iterator[Any]:
    """engine(inputs of the model, **keys) returns a node; each model is written once."""
    name = request.param
    if find_spec(ENGINES[name]) is None:
        pytest.skip(f"{ENGINES[name]} is not installed")
    written: dict[tuple[str, str], Path] = {}

    def node(a: str = "a", b: str = "b", **keys: Any) -> dict[str, Any]:
        if (a, b) not in written:
            write = WRITERS.get(name, write_onnx)
            written[a, b] = write(tmp_path_factory.mktemp("model"), a, b)
        own = {"device": "cpu"} if name == "TorchModel" else {}
        return {"backend": name, "model": str(written[a, b]), **own, **keys}

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        if name == "TensorrtTensor":
            fake_tensorrt(patch)
        yield node


def shown(value: Any) -> Any:
    if getattr(value, "device", None) is not None and "cuda" in str(value.device):
        with hami.pipe("hami-cuda::CpuTensor") as pipe:
            value = pipe({"data": value})["result"]
    return hami.to_numpy(value).tolist()


def test_without_data_each_input_is_a_key_and_so_is_each_output(engine):
    with hami.pipe(engine()) as pipe:
        found = pipe({"a": array(3, 4), "b": array(1, 1), "other": 1})
        assert (shown(found["total"]), shown(found["rest"])) == ([[4, 5]], [[2, 3]])
        assert {name: shown(value) for name, value in found["result"].items()} == {"total": [[4, 5]], "rest": [[2, 3]]}


def test_requests_by_key_and_by_data_get_their_own_rows_of_a_batch(engine):
    requests = [
        {"a": array(i, i), "b": array(1, 2)} if i % 2 else {"data": {"a": array(i, i), "b": array(1, 2)}}
        for i in range(6)
    ]
    with hami.pipe(engine(max=8)) as pipe:
        assert [shown(found["total"]) for found in pipe(requests)] == [[[i + 1, i + 2]] for i in range(6)]


def test_map_feeds_a_model_from_several_nodes(engine):
    nodes = {
        "src": {"backend": "Identity", "next": "double,same"},
        "double": engine(next="model", inputs=["a", "b"]),
        "same": {"backend": "Identity", "next": "model"},
        "model": engine(map="double[total:a],same[result:b]", next="last"),
        "last": {"backend": "Identity", "map": "model[rest:data]"},
    }
    with hami.pipe(nodes) as pipe:
        found = pipe({"data": array(5, 7), "a": array(5, 7), "b": array(5, 7)})
        assert shown(found["result"]) == [[5, 7]]


def test_the_key_inputs_reads_the_keys_although_there_is_data(engine):
    with hami.pipe(engine(inputs=["b", "a"])) as pipe:
        assert shown(pipe({"data": "text", "a": array(3, 4), "b": array(1, 1)})["rest"]) == [[2, 3]]
        with pytest.raises(
            hami.RequestError, match=r'the inputs \["a", "b"\], of which the request lacks \["a", "b"\]'
        ):
            pipe({"data": {"a": array(3, 4), "b": array(1, 1)}})


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (
            {"a": [0]},
            r'the model has the inputs \["a", "b"\], of which the request lacks \["b"\]; its keys are \["a"\]',
        ),
        (
            {"x": [0]},
            r'the request has no key "data", and none of the model\'s inputs \["a", "b"\]; its keys are \["x"\]',
        ),
    ],
)
def test_a_missing_input_is_named_and_the_next_request_is_served(engine, request_, error):
    with hami.pipe(engine()) as pipe:
        with pytest.raises(hami.RequestError, match=error):
            pipe(request_)
        assert shown(pipe({"a": array(3, 4), "b": array(1, 1)})["total"]) == [[4, 5]]


@pytest.mark.parametrize("names", [["a"], ["a", "b", "c"]])
def test_the_key_inputs_must_name_the_inputs_of_the_model(engine, names):
    with pytest.raises(hami.ConfigError, match=r'"inputs" must name all inputs of the model, \["a", "b"\]; got \["a"'):
        hami.pipe(engine(inputs=names))


def test_an_input_called_data_beside_others_is_that_input_if_all_have_keys(engine):
    both = {"data": array(3, 4), "mask": array(1, 1)}
    with hami.pipe(engine("data", "mask")) as pipe:
        assert shown(pipe(dict(both))["rest"]) == [[2, 3]]
        assert shown(pipe({"data": both, "mask": array(9, 9)})["rest"]) == [[2, 3]]  # a dict has all inputs
        with pytest.raises(hami.Error, match=r"data.*mask"):
            pipe({"data": array(3, 4)})
    with hami.pipe(engine("data", "mask", inputs=["data", "mask"])) as pipe:
        assert shown(pipe(both)["rest"]) == [[2, 3]]


def test_an_output_with_a_reserved_name_is_only_in_the_result(tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = GRAPH.format(a="a", b="b").replace("total", "priority")
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    with hami.pipe({"backend": "OnnxTensor", "model": str(tmp_path / "m.onnx")}) as pipe:
        found = pipe({"a": array(3, 4), "b": array(1, 1)})
        assert (sorted(found), shown(found["result"]["priority"])) == (["a", "b", "rest", "result"], [[4, 5]])
