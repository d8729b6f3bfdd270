"""CUDA graphs with concurrent pipes, cached anchors, modified inputs and callers on their own streams."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

SHAPE = {"row_shape": [3, 16, 16]}


def grid(*shape: int) -> torch.Tensor:
    return torch.rand(1, 3, *shape, device="cuda")


@pytest.mark.parametrize("end", ["SyncTensor", "StreamGuard"])
def test_pipes_with_graphs_open_and_close_while_another_pipe_serves(pipe, end):
    """A capture must not affect or record the work of other pipes."""
    config = {"factory": "helpers:Double", **SHAPE, "graphs": [1, 4], "batching": "greedy"}
    serving = pipe(f"S[TorchModel,{end}]", **config, instance_num=2)
    stop = threading.Event()

    def serve(number: int) -> int:
        calls = 0
        while not stop.is_set():
            data = torch.full((1, 3, 16, 16), float(number), device="cuda")
            assert (serving({"data": data})["result"] == 2 * number).all()
            calls += 1
        return calls

    def open_and_close(number: int) -> None:
        for _ in range(6):
            other = pipe(f"S[TorchModel,{end}]", **config)
            data = torch.full((1, 3, 16, 16), float(number), device="cuda")
            assert (other({"data": data})["result"] == 2 * number).all()
            other.close()

    with ThreadPoolExecutor(6) as threads:
        servers = [threads.submit(serve, number) for number in range(3)]
        others = [threads.submit(open_and_close, number) for number in range(10, 13)]
        try:
            for other in others:
                other.result()
        finally:
            stop.set()
        assert all(server.result() > 0 for server in servers)


def test_a_model_that_caches_tensors_by_shape_is_correct_at_every_shape(pipe):
    """As the anchors of a detector: the module replaces them for each shape, and each graph reads its own."""
    captured = pipe(
        "S[TorchModel,SyncTensor]", factory="helpers:CachesAnchors", **SHAPE, graphs=[2, 4], batching="greedy"
    )
    for shape in [(16, 16), (20, 24), (16, 16), (8, 8), (16, 16)]:
        for rows in (1, 2, 3, 4):
            data = [grid(*shape) for _ in range(rows)]
            results = captured([{"data": each} for each in data])
            ramp = torch.arange(float(shape[1]), device="cuda")
            for each, result in zip(data, results, strict=True):
                torch.testing.assert_close(result["result"], each + ramp)


def test_a_model_that_modifies_its_input_does_not_modify_the_callers_data(pipe):
    captured = pipe(
        "S[TorchModel,SyncTensor]", factory="helpers:DoublesInPlace", **SHAPE, graphs=[2], batching="greedy"
    )
    for shape in [(16, 16), (8, 8)]:  # with a graph, and without one
        for rows in (1, 2):
            data = [grid(*shape) for _ in range(rows)]
            before = [each.clone() for each in data]
            results = captured([{"data": each} for each in data])
            for each, was, result in zip(data, before, results, strict=True):
                torch.testing.assert_close(result["result"], was * 2)
                torch.testing.assert_close(each, was)


@pytest.mark.parametrize("graphs", [[], [1, 4]])
@pytest.mark.parametrize(
    ("backend", "must_order"),
    [
        ("S[TorchModel,SyncTensor]", True),
        ("S[TorchModel,StreamGuard]", True),
        ("StreamGuard[TorchModel]", True),
        ("TorchModel", False),  # runs on the caller's thread, whose stream is known
    ],
)
def test_a_caller_may_use_its_own_stream(pipe, slow_work, backend, must_order, graphs):
    model = pipe(backend, factory="helpers:CachesAnchors", **SHAPE, graphs=graphs)
    ramp = torch.arange(16.0, device="cuda")
    torch.cuda.synchronize()
    default, side = torch.cuda.default_stream(), torch.cuda.Stream()
    for value in range(1, 4):
        with torch.cuda.stream(side):
            data = torch.zeros(1, 3, 16, 16, device="cuda")
            slow_work()
            data.fill_(value)
            if must_order:
                default.wait_stream(side)
            result = model({"data": data})["result"]
            if must_order:
                side.wait_stream(default)
            assert torch.equal(result * 2, (ramp + value).expand_as(result) * 2)
