"""Modules that torch.compile made, without a compiler: it is dynamo, its front, that has the threads and the shapes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hami
import pytest
import torch
from helpers import Scaled, message

from hami_torch._compiled import is_compiled, refuse_own_graphs
from hami_torch._program import Program
from hami_torch.torch_model import TorchModel

# The parts of torch's own compiler warn of each other where they are imported.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")

compiled: list[Any] = []  # what torch gave to be compiled


def counting(graph: Any, inputs: list[Any]) -> Callable[..., Any]:
    """A backend of torch.compile that runs what it was given as it is."""
    compiled.append(graph)
    return graph.forward


def whole(bias: float = 0.0) -> torch.nn.Module:
    return torch.compile(Scaled(bias), backend=counting)


def in_place(bias: float = 0.0) -> torch.nn.Module:
    module = Scaled(bias)
    module.compile(backend=counting)
    return module


def a_part() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Identity(), whole())


@pytest.fixture(autouse=True)
def _afresh(torch_compiles):
    torch.compiler.reset()
    compiled.clear()


@pytest.mark.parametrize("factory", ["whole", "in_place", "a_part"])
def test_many_threads_run_what_was_compiled(pipe, factory):
    served = pipe("TorchModel", factory=f"test_compiled:{factory}", instance_num=2, max=8, row_shape=[2])

    def ask(number: int) -> list[Any]:
        rows = 1 + number % 5
        request = {"data": torch.full((rows, 2), float(number)), "request_size": rows}
        return served(request)["result"].tolist()

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(ask, range(200)))
    assert results == [[[3.0 * number] * 2] * (1 + number % 5) for number in range(200)]


@pytest.mark.parametrize("factory", ["whole", "in_place"])
def test_requests_find_it_compiled_for_any_number_of_rows(pipe, factory):
    served = pipe("TorchModel", factory=f"test_compiled:{factory}", max=64, row_shape=[2], rows=64)
    assert len(compiled) == 2  # for one row, and for any number
    for rows in (1, 2, 3, 7, 64):
        served({"data": torch.ones(rows, 2), "request_size": rows})
    assert len(compiled) == 2  # for one row, and for any number


@pytest.mark.parametrize(
    ("made", "sizes", "rows", "starts"),
    [
        (whole, [8, 32, 16], None, [32, 16]),
        (whole, [4], None, [4]),
        (whole, [], None, [1, 2]),
        (whole, [], 64, [1, 64]),
        (Scaled, [8, 32, 16], None, [32]),
        (Scaled, [], None, [1]),
        (Scaled, [], 64, [64]),
    ],
)
def test_what_is_run_before_requests_come(made, sizes, rows, starts):
    model = TorchModel()
    model._program, model.rows = Program(made()), rows
    assert model._starts(sizes) == starts


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
@pytest.mark.parametrize("how", ["whole", "in place", "a part"])
def test_cuda_graphs_of_its_own_are_refused(mode, how):
    module = Scaled()
    if how == "in place":
        module.compile(mode=mode)
    else:
        module = torch.compile(module, mode=mode)
    if how == "a part":
        module = torch.nn.Sequential(module, torch.nn.ReLU())
    assert is_compiled(module)
    with pytest.raises(hami.ConfigError) as raised:
        refuse_own_graphs(module, "TorchModel")
    assert message(raised) == (
        'TorchModel: torch.compile made the model with CUDA graphs of its own, as mode="reduce-overhead" and '
        '"max-autotune" do, and these are for one thread; compile it with the default mode, or with '
        '"max-autotune-no-cudagraphs", and give "graphs" here'
    )


def test_what_has_no_graphs_of_its_own_is_not_refused():
    for settings in ({}, {"mode": "max-autotune-no-cudagraphs"}, {"backend": "eager"}):
        refuse_own_graphs(torch.compile(Scaled(), **settings), "TorchModel")
    refuse_own_graphs(Scaled(), "TorchModel")
    assert not is_compiled(Scaled())
