"""CUDA graphs that TorchModel captures by itself, for the batch sizes that a node runs."""

from __future__ import annotations

import threading
import time
from typing import Any

import hami
import pytest
import torch

from hami_torch import _auto_graphs
from hami_torch._auto_graphs import RUNS

SERVED = {"backend": "S[TorchModel,SyncTensor]", "batched": True, "batching": "greedy"}


@pytest.fixture
def replays(monkeypatch) -> list[int]:
    """The rows of each run of a graph."""
    seen: list[int] = []
    run = _auto_graphs.Graphs.run

    def noting(self, parts, rows):
        output = run(self, parts, rows)
        if threading.current_thread().name != "hami-graphs":
            seen.append(rows)
        return output

    monkeypatch.setattr(_auto_graphs.Graphs, "run", noting)
    return seen


def row(value: float, columns: int = 16) -> torch.Tensor:
    return torch.full((1, columns), float(value), device="cuda")


def captured(served: hami.Pipe, data: Any = None) -> bool:
    """Run batches of up to three requests until the graphs are there; False: they do not come."""
    for number in range(4 * RUNS):
        requests = served([{"data": row(i) if data is None else data} for i in range(number % 3 + 1)])
        if data is None:
            assert [request["result"][0, 0].item() for request in requests] == [2.0 * i for i in range(number % 3 + 1)]
        for thread in threading.enumerate():
            if thread.name == "hami-graphs":
                thread.join(30)
        if served.stats()["default"].counters.get("graph_bytes") is not None:
            return True
    return False


def test_graphs_come_by_themselves_and_give_the_same_results(replays):
    with hami.pipe({**SERVED, "factory": "helpers:Double", "max": 8}) as served:
        assert captured(served)
        before = len(replays)
        for count in (1, 2, 3):
            requests = served([{"data": row(i)} for i in range(count)])
            assert [request["result"][0, 0].item() for request in requests] == [2.0 * i for i in range(count)]
        assert replays[before:] == [1, 2, 3]
        other = served({"data": torch.ones(1, 5, device="cuda")})["result"]  # another shape runs without
        assert other.tolist() == [[2.0] * 5]
        assert len(replays) == before + 3


def test_graphs_false_captures_nothing(replays):
    with hami.pipe({**SERVED, "factory": "helpers:Double", "max": 8, "graphs": False}) as served:
        assert not captured(served)
    assert replays == []


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        ("test_gpu_auto_graphs:AsksTheDevice", "cannot be captured as a CUDA graph"),
        ("test_gpu_auto_graphs:RandomNumbers", "the model uses random numbers"),
    ],
)
def test_a_model_that_cannot_be_captured_serves_on_and_says_why(replays, factory, reason):
    with hami.pipe({**SERVED, "factory": factory}) as served:
        for _ in range(400):
            result = served({"data": row(3)})["result"]
            for thread in threading.enumerate():
                if thread.name == "hami-graphs":
                    thread.join(30)
        assert result.shape == (1, 16)
        assert any(reason in remark for remark in served.remarks())
    assert replays == []


class AsksTheDevice(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.max().item() < 100 else x


class RandomNumbers(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


def test_callers_are_served_while_graphs_are_captured_and_other_threads_use_the_device():
    stop = threading.Event()

    def use_the_device() -> None:
        while not stop.is_set():
            torch.ones(8, device="cuda").sum().item()
            time.sleep(0.001)

    other = threading.Thread(target=use_the_device)
    other.start()
    try:
        for _ in range(3):
            with hami.pipe({**SERVED, "factory": "helpers:Double", "max": 8, "instance_num": 2}) as served:
                assert captured(served)
    finally:
        stop.set()
        other.join()
