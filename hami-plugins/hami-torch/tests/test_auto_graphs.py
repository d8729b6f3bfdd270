"""Which graphs AutoGraphs makes, and when; tests/gpu captures real ones."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakSet

import hami
import pytest
import torch
from helpers import message

from hami_torch._auto_graphs import RUNS, AutoGraphs, allowed, ladder


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [(1, [1]), (2, [1, 2]), (7, [1, 2, 3, 4, 6, 8]), (8, [1, 2, 3, 4, 6, 8]), (9, [1, 2, 3, 4, 6, 8, 12])],
)
def test_the_ladder_ends_with_the_first_size_that_fits(rows, sizes):
    assert ladder(rows) == sizes


@pytest.mark.parametrize(
    ("key", "says"), [(["auto"], True), ([], False), (["false"], False), (["Off"], False), ([1, "8"], [1, "8"])]
)
def test_the_key_graphs(key, says):
    assert allowed(key) == says


def test_graphs_true_is_an_error():
    with pytest.raises(hami.ConfigError) as raised:
        allowed(["true"])
    assert message(raised) == 'TorchModel: "graphs" must be a list of batch sizes, auto or false, got true'


class Made:
    def close(self) -> None: ...


class Captures:
    """AutoGraphs with a capture that notes what it is asked for, and fails as often as `failures` says."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, failures: int = 0, difference: str = "", instances: Any = None
    ) -> None:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 30, 1 << 34))
        self.asked: list[list[int]] = []
        self.ready: list[int] = []
        self.remarks: list[str] = []
        self.failures, self.difference = failures, difference
        self.auto = AutoGraphs(
            torch.device("cpu"),
            self.capture,
            lambda graphs, example: self.difference,
            lambda graphs, taken: self.ready.append(taken),
            self.remarks.append,
            instances,
        )

    def capture(self, sizes: Any, row: Any) -> Any:
        self.asked.append(list(sizes))
        if len(self.asked) <= self.failures:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        return Made()

    def run(self, rows: int, times: int = RUNS, columns: int = 2) -> None:
        for _ in range(times):
            self.auto.saw(torch.zeros(rows, columns))
            for thread in threading.enumerate():
                if thread.name == "hami-graphs":
                    thread.join()


def test_graphs_are_made_for_the_largest_batch_that_runs_again_and_again(monkeypatch):
    captures = Captures(monkeypatch)
    captures.run(9, 1)  # once does not count
    captures.run(3, RUNS - 2)
    assert captures.asked == []
    captures.run(3, 1)
    assert captures.asked == [[1, 2, 3]]
    captures.run(5)  # no graph has taken these
    assert captures.asked[1:] == [[1, 2, 3, 4, 6]]
    assert len(captures.ready) == 2


def test_shapes_that_do_not_repeat_make_no_graphs(monkeypatch):
    captures = Captures(monkeypatch)
    for columns in range(1, 4 * RUNS):
        captures.run(1, 1, columns)
    assert captures.asked == []


def test_a_lost_capture_is_tried_again_later(monkeypatch):
    captures = Captures(monkeypatch, failures=1)
    captures.run(2, 3 * RUNS)
    assert (len(captures.asked), captures.ready, captures.remarks) == (1, [], [])
    captures.run(2, 2 * RUNS)
    assert (len(captures.asked), len(captures.ready)) == (2, 1)


def test_a_model_that_cannot_be_captured_ends_the_attempts_with_a_remark(monkeypatch):
    captures = Captures(monkeypatch, failures=99)
    captures.run(2, 100 * RUNS)
    assert len(captures.asked) == 3
    assert captures.remarks == [
        "TorchModel runs without CUDA graphs: operation not permitted when stream is capturing; graphs = false stops "
        "the attempt"
    ]


def test_graphs_that_give_other_results_are_not_used(monkeypatch):
    captures = Captures(monkeypatch, difference="captured as graphs, the model gives other results")
    captures.run(2, 10 * RUNS)
    assert (len(captures.asked), captures.ready) == (1, [])
    assert captures.remarks[0].startswith("TorchModel runs without CUDA graphs: captured as graphs, ")


def test_a_closed_pipe_makes_no_graphs(monkeypatch):
    captures = Captures(monkeypatch)
    captures.auto.close()
    captures.run(2)
    assert captures.asked == []


def test_the_graphs_of_all_instances_are_made_once_one_is_in_use(monkeypatch):
    instances = WeakSet()
    first, second, closed = (Captures(monkeypatch, instances=instances) for _ in range(3))
    failing = Captures(monkeypatch, failures=1, instances=instances)
    closed.auto.close()
    first.run(3)
    assert first.asked == second.asked == [[1, 2, 3]]
    assert (len(first.ready), len(second.ready)) == (1, 1)
    assert closed.asked == []
    second.run(5)  # larger batches: graphs of both are replaced
    assert first.asked[1:] == second.asked[1:] == [[1, 2, 3, 4, 6]]
    assert failing.remarks == []


def test_the_graphs_of_all_instances_together_have_a_limit(monkeypatch):
    instances = WeakSet()
    captures = [Captures(monkeypatch, instances=instances) for _ in range(4)]
    free = iter(range(1 << 34, 0, -(1 << 28) - (1 << 27)))  # each capture takes 384 MB, and 1,024 are allowed
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (next(free), 1 << 34))
    captures[0].run(2)
    assert sum(len(each.ready) for each in captures) == 2
    (remark,) = (remark for each in captures for remark in each.remarks)
    assert remark.startswith("TorchModel runs without CUDA graphs: its graphs take 1152 MB with those of other ")
