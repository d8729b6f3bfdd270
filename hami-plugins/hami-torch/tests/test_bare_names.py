"""Names of the core on CUDA tensors, which the core hands to this package; and equal results of both on the CPU."""

from __future__ import annotations

import hami
import numpy as np
import pytest
import torch
from helpers import message

from hami_torch import _tensor, fix_tensor

SHARED = (
    "ArgMaxTensor",
    "CatTensor",
    "ContiguousTensor",
    "FixTensor",
    "SoftmaxTensor",
    "SplitTensor",
    "TopKTensor(k=2)",
)


class OnCuda(torch.Tensor):
    """A tensor that reports a CUDA device through DLPack, as the core sees it, and computes on the CPU."""

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **_):
        raise BufferError("CUDA memory cannot be read on the CPU")


def on_cuda(values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype).as_subclass(OnCuda)


@pytest.fixture
def devices(monkeypatch):
    """Let every backend find its device, on the CPU; return the names that were asked for."""
    asked = []

    def device_of(name, owner, kinds=("cuda", "cpu")):
        asked.append(name)
        return torch.device("cpu")

    for module in (_tensor, fix_tensor):
        monkeypatch.setattr(module, "device_of", device_of)
    return asked


@pytest.mark.parametrize("backend", SHARED)
def test_a_bare_name_takes_cuda_tensors_and_arrays_without_providers(devices, backend):
    with hami.pipe(backend) as pipe:
        result = pipe({"data": on_cuda([[1, 3, 2]])})["result"]
        plain = pipe({"data": np.array([[1, 3, 2]], np.float32)})["result"]
    assert devices == ["cuda:0"]
    pairs = zip(result.values(), plain.values(), strict=True) if isinstance(result, dict) else [(result, plain)]
    for computed, expected in pairs:
        assert type(computed) is OnCuda
        assert type(expected) is hami.Tensor
        assert np.allclose(computed.as_subclass(torch.Tensor).numpy(), hami.to_numpy(expected))


def test_an_expression_of_bare_names_stays_on_the_device(devices):
    expression = "CatSplit[S[FixTensor(shape='-1,2'),CatTensor],S[ContiguousTensor,SoftmaxTensor],SplitTensor]"
    with hami.pipe({"backend": expression, "max": 4, "batching": "greedy"}) as pipe:
        requests = pipe([{"data": on_cuda([[0, 0]])}, {"data": on_cuda([[1, 1], [2, 2]])}])
        alone = pipe({"data": np.zeros((1, 2), np.float32)})["result"]
    assert [request["result"].tolist() for request in requests] == [[[0.5, 0.5]], [[0.5, 0.5]] * 2]
    assert {type(request["result"]) for request in requests} == {OnCuda}
    assert type(alone) is hami.Tensor


def test_fix_tensor_moves_data_to_the_device_of_the_engine(devices):
    @hami.register
    class EngineOnCuda(hami.Backend):
        def init(self, options):
            entry = {"name": "x", "dtype": "float16", "shape": [-1, 3, 2, 2], "device": "cuda:1", "batch_axis": True}
            options["engine_inputs"] = [entry]

        def forward(self, batch):
            for item in batch:
                item["result"] = item["data"]

    with hami.pipe("S[FixTensor,EngineOnCuda]") as pipe:
        for data in (np.zeros((2, 2, 3), np.uint8), on_cuda(np.zeros((2, 2, 3)))):
            result = pipe({"data": data})["result"]
            assert isinstance(result, torch.Tensor)
            assert (result.dtype, result.shape) == (torch.float16, (1, 3, 2, 2))
        with pytest.raises(hami.RequestError) as raised:
            pipe({"data": on_cuda(np.zeros((2, 5, 3)))})
    assert message(raised) == (
        'FixTensor takes float16 [-1, 3, 2, 2] for input "x" of the engine, got float32 [2, 5, 3]'
    )
    assert devices == [
        "cuda:1",
        "cuda:1",
        "cuda:0",
        "cuda:1",
    ]  # for CPU data and for CUDA data: `device`, and the engine


def test_fix_tensor_names_what_does_not_fit_the_engine(devices):
    @hami.register
    class EngineOfIntegers(hami.Backend):
        dtype: str = "uint8"

        def init(self, options):
            options["engine_inputs"] = [
                {"name": name, "dtype": self.dtype, "shape": [-1, 2], "device": "cpu", "batch_axis": True}
                for name in "ab"
            ]

        def forward(self, batch):
            for item in batch:
                item["result"] = item["data"]

    rows = torch.zeros(1, 2, dtype=torch.uint8)
    with hami.pipe("S[hami-torch::FixTensor(device=cpu),EngineOfIntegers]") as pipe:
        for data, kind, text in (
            (rows, hami.RequestError, "FixTensor: the engine has the inputs [a, b], got [data]"),
            ({"a": rows, "c": rows}, hami.RequestError, "FixTensor: the engine has the inputs [a, b], got [a, c]"),
            (
                {"a": rows, "b": rows.int()},
                hami.DataTypeError,
                'FixTensor takes uint8 [-1, 2] for input "b" of the engine, got int32 [1, 2]; a cast from int32 would '
                "lose values",
            ),
        ):
            with pytest.raises(kind) as raised:
                pipe({"data": data})
            assert message(raised) == text
    with pytest.raises(hami.ConfigError) as raised:
        hami.pipe("S[hami-torch::FixTensor(device=cpu),EngineOfIntegers(dtype=float12)]")
    assert message(raised) == 'FixTensor: torch has no dtype "float12", which the engine takes'


SCORES = (
    *(torch.tensor([[3, 1, 3, 2], [0, -1, 5, 5]]).to(dtype) for dtype in (torch.int8, torch.int64, torch.float16)),
    torch.tensor([[1.0, float("nan"), 2.0, float("inf")], [-1.0, 0.0, 0.0, -0.5]]),
    torch.zeros(2, 4, dtype=torch.bool),
    torch.arange(24.0, dtype=torch.float64).reshape(2, 3, 4).transpose(0, 2),
)


@pytest.mark.parametrize("scores", SCORES, ids=lambda tensor: f"{_tensor.show(tensor)}")
@pytest.mark.parametrize(
    "backend", ["SoftmaxTensor", "SoftmaxTensor(axis=0)", "ArgMaxTensor", "ArgMaxTensor(axis=-2)", "TopKTensor(k=2)"]
)
def test_scores_are_those_of_the_core(backend, scores):
    def outcome(config):
        with hami.pipe(config) as pipe:
            try:
                result = pipe({"data": scores})["result"]
            except hami.Error as error:
                return type(error), message_of(error)
        parts = result if isinstance(result, dict) else {"": result}
        return {name: torch.from_dlpack(part) for name, part in parts.items()}

    def message_of(error):
        return str(error).splitlines()[0]

    ours, core = outcome({"backend": f"hami-torch::{backend}", "device": "cpu"}), outcome(backend)
    if isinstance(core, tuple):
        assert ours == core
        return
    assert ours.keys() == core.keys()
    for name in core:
        torch.testing.assert_close(ours[name], core[name], equal_nan=True)


@pytest.mark.parametrize(
    ("backend", "data"),
    [
        ("ArgMaxTensor(axis=2)", torch.zeros(1, 2)),
        ("ArgMaxTensor", torch.zeros(1, 0)),
        ("TopKTensor(k=3)", torch.zeros(1, 2)),
        ("TopKTensor(k=1)", torch.zeros(1, 2, dtype=torch.complex64)),
        ("SoftmaxTensor", torch.tensor(1.0)),
    ],
)
def test_errors_about_scores_are_those_of_the_core(backend, data):
    texts = []
    for config in ({"backend": f"hami-torch::{backend}", "device": "cpu"}, {"backend": backend}):
        with hami.pipe(config) as pipe, pytest.raises(hami.Error) as raised:
            pipe({"data": data})
        texts.append((type(raised.value), message(raised)))
    assert texts[0] == texts[1]
