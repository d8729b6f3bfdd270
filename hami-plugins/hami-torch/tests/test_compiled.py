"""Modules made by torch.compile. A backend without a compiler is enough: dynamo handles the shapes and threads."""

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
from hami_torch._compiled import CompiledModule, is_compiled, reject_own_cuda_graphs
from hami_torch._program import Program
from hami_torch.torch_model import TorchModel

# Importing torch's own compiler emits deprecation warnings.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")

compiled: list[Any] = []  # the graphs that torch passed to the backend


def counting(graph: Any, inputs: list[Any]) -> Callable[..., Any]:
    """A backend of torch.compile that counts graphs and runs them uncompiled."""
    compiled.append(graph)
    return graph.forward


def compiled_module(bias: float = 0.0) -> torch.nn.Module:
    return torch.compile(Scaled(bias), backend=counting)


def compiled_in_place(bias: float = 0.0) -> torch.nn.Module:
    module = Scaled(bias)
    module.compile(backend=counting)
    return module


def compiled_part() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Identity(), compiled_module())


@pytest.fixture(autouse=True)
def _reset_compiler(torch_compiles):
    torch.compiler.reset()
    compiled.clear()


@pytest.mark.parametrize("factory", ["compiled_module", "compiled_in_place", "compiled_part"])
def test_many_threads_run_a_compiled_module(pipe, factory):
    served = pipe("TorchModel", factory=f"test_compiled:{factory}", instance_num=2, max=8, row_shape=[2])

    def ask(number: int) -> list[Any]:
        rows = 1 + number % 5
        request = {"data": torch.full((rows, 2), float(number)), "request_size": rows}
        return served(request)["result"].tolist()

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(ask, range(200)))
    assert results == [[[3.0 * number] * 2] * (1 + number % 5) for number in range(200)]


@pytest.mark.parametrize("factory", ["compiled_module", "compiled_in_place"])
def test_init_compiles_for_any_number_of_rows(pipe, factory):
    served = pipe("TorchModel", factory=f"test_compiled:{factory}", max=64, row_shape=[2], rows=64)
    assert len(compiled) == 2  # for one row, and for any number
    for rows in (1, 2, 3, 7, 64):
        served({"data": torch.ones(rows, 2), "request_size": rows})
    assert len(compiled) == 2  # for one row, and for any number


@pytest.mark.parametrize(
    ("make", "is_wrapped"), [(compiled_module, True), (compiled_in_place, True), (compiled_part, True), (Scaled, False)]
)
def test_only_compiled_modules_are_wrapped(make, is_wrapped):
    assert isinstance(Program(make()).run, CompiledModule) is is_wrapped


def test_runs_with_known_input_overlap():
    both = threading.Barrier(2)
    alone = True
    run = CompiledModule(lambda x: None if alone else both.wait(10))
    run(torch.ones(2))
    alone = False
    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(run, [torch.ones(2)] * 2)) == [0, 1]


class ObservableLock:
    """A lock that can be waited for until another thread has acquired it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acquired = threading.Semaphore(0)

    def __enter__(self) -> None:
        self._lock.acquire()
        self._acquired.release()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self) -> None:
        """Return after one more acquisition."""
        assert self._acquired.acquire(timeout=10)


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
def test_a_run_with_new_input_is_exclusive(monkeypatch, new):
    events, all_waiting, known = [], threading.Event(), torch.zeros(2)

    def call(**named: torch.Tensor) -> None:
        name = "known" if named.get("x") is known else "new"
        events.append(f"{name} begins")
        if len(events) == 3:
            all_waiting.wait(10)
        events.append(f"{name} ends")

    run = CompiledModule(call)
    run(x=known)
    monkeypatch.setattr(_compiled._compile_lock, "_entry", lock := ObservableLock())
    with ThreadPoolExecutor(3) as threads:
        calls = []
        for given in ({"x": known}, new):
            calls.append(threads.submit(run, **given))
            lock.wait()
        calls.append(threads.submit(run, x=known))
        all_waiting.set()
    assert [each.result() for each in calls] == [None] * 3
    assert events == [f"{name} {what}" for name in ("known", "known", "new", "known") for what in ("begins", "ends")]


def test_a_failed_run_releases_the_lock():
    def call(x: torch.Tensor) -> int:
        if not x.any():
            raise ValueError("zeros")
        return len(x)

    run = CompiledModule(call)
    for zeros in (torch.zeros(2), torch.zeros(3)):  # shape [2] is known after the first pass, [3] never
        with pytest.raises(ValueError, match="zeros"):
            run(zeros)
        assert run(torch.ones(2)) == 2
    with pytest.raises(ValueError, match="zeros"):
        run(torch.zeros(2))
    assert run(torch.ones(5)) == 5


def test_the_number_of_known_inputs_is_limited(monkeypatch):
    monkeypatch.setattr(_compiled, "_MAX_KNOWN_SIGNATURES", 3)
    run = CompiledModule(len)
    assert [run(torch.ones(rows)) for rows in range(8)] == list(range(8))
    assert len(run._known) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_runs_of_its_parent():
    with _compiled._compile_lock.shared():
        child = os.fork()
        if not child:
            signal.alarm(10)
            with _compiled._compile_lock.exclusive():
                os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize(
    ("make", "sizes", "rows", "expected"),
    [
        (compiled_module, [8, 32, 16], None, [32, 16]),
        (compiled_module, [4], None, [4]),
        (compiled_module, [], None, [1, 2]),
        (compiled_module, [], 64, [1, 64]),
        (Scaled, [8, 32, 16], None, [32]),
        (Scaled, [], None, [1]),
        (Scaled, [], 64, [64]),
    ],
)
def test_the_rows_of_the_warm_up_runs(make, sizes, rows, expected):
    model = TorchModel()
    model.rows = rows
    assert model._warm_up_rows(sizes, Program(make())) == expected


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
@pytest.mark.parametrize("how", ["module", "in place", "part"])
def test_cuda_graphs_of_torch_compile_are_rejected(mode, how):
    module = Scaled()
    if how == "in place":
        module.compile(mode=mode)
    else:
        module = torch.compile(module, mode=mode)
    if how == "part":
        module = torch.nn.Sequential(module, torch.nn.ReLU())
    assert is_compiled(module)
    with pytest.raises(hami.ConfigError) as raised:
        reject_own_cuda_graphs(module, "TorchModel")
    assert message(raised) == (
        "TorchModel: the model is compiled with CUDA graphs of torch.compile, which work on one thread only "
        '(mode="reduce-overhead" and mode="max-autotune" use them); compile it in the default mode or with '
        '"max-autotune-no-cudagraphs", and set the parameter "graphs" instead'
    )


def test_modules_without_cuda_graphs_of_torch_compile_are_accepted():
    for settings in ({}, {"mode": "max-autotune-no-cudagraphs"}, {"backend": "eager"}):
        reject_own_cuda_graphs(torch.compile(Scaled(), **settings), "TorchModel")
    reject_own_cuda_graphs(Scaled(), "TorchModel")
    assert not is_compiled(Scaled())
