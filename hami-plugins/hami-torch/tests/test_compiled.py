"""Modules that torch.compile made, without a compiler: it is dynamo, its front, that has the threads and the shapes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hami
import pytest
import torch
from helpers import Scaled, message

from hami_torch import _compiled
from hami_torch._compiled import CompiledModule, is_compiled, refuse_own_graphs
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


@pytest.mark.parametrize(("made", "turns"), [(whole, True), (in_place, True), (a_part, True), (Scaled, False)])
def test_what_is_compiled_takes_turns(made, turns):
    assert isinstance(Program(made()).run, CompiledModule) is turns


def test_runs_with_input_that_was_met_overlap():
    both = threading.Barrier(2)
    alone = True
    run = CompiledModule(lambda x: None if alone else both.wait(10))
    run(torch.ones(2))
    alone = False
    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(run, [torch.ones(2)] * 2)) == [0, 1]


class Door:
    """A lock that tells when somebody has it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passed = threading.Semaphore(0)

    def __enter__(self) -> None:
        self._lock.acquire()
        self._passed.release()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self) -> None:
        """Return when one more has it."""
        assert self._passed.acquire(timeout=10)


@pytest.mark.parametrize(
    "new",
    [
        {"x": torch.ones(3)},
        {"x": torch.ones(2, dtype=torch.float64)},
        {"x": torch.ones(4)[::2]},
        {"x": torch.ones(2).to_sparse()},
        {"other": torch.ones(2)},
    ],
    ids=["shape", "dtype", "strides", "layout", "name"],
)
def test_a_run_with_new_input_is_alone(monkeypatch, new):
    events, waits, met = [], threading.Event(), torch.zeros(2)

    def call(**named: torch.Tensor) -> None:
        name = "met" if named.get("x") is met else "new"
        events.append(f"{name} begins")
        if len(events) == 3:
            waits.wait(10)
        events.append(f"{name} ends")

    run = CompiledModule(call)
    run(x=met)
    monkeypatch.setattr(_compiled._turns, "_door", door := Door())
    with ThreadPoolExecutor(3) as threads:
        asked = []
        for given in ({"x": met}, new):
            asked.append(threads.submit(run, **given))
            door.wait()
        asked.append(threads.submit(run, x=met))
        waits.set()
    assert [each.result() for each in asked] == [None] * 3
    assert events == [f"{name} {what}" for name in ("met", "met", "new", "met") for what in ("begins", "ends")]


def test_turns_go_on_after_a_run_that_failed():
    def call(x: torch.Tensor) -> int:
        if not x.any():
            raise ValueError("zeros")
        return len(x)

    run = CompiledModule(call)
    for zeros in (torch.zeros(2), torch.zeros(3)):  # met after the first, and never
        with pytest.raises(ValueError, match="zeros"):
            run(zeros)
        assert run(torch.ones(2)) == 2
    with pytest.raises(ValueError, match="zeros"):
        run(torch.zeros(2))
    assert run(torch.ones(5)) == 5


def test_inputs_met_long_ago_are_forgotten(monkeypatch):
    monkeypatch.setattr(_compiled, "_MOST_KEPT", 3)
    run = CompiledModule(len)
    assert [run(torch.ones(rows)) for rows in range(8)] == list(range(8))
    assert len(run._met) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_does_not_wait_for_those_who_run_in_its_parent():
    with _compiled._turns.together():
        child = os.fork()
        if not child:
            signal.alarm(10)
            with _compiled._turns.alone():
                os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


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
