"""`hami_tools.ThroughputBenchmark`: what it measures and what it rejects."""

from __future__ import annotations

import threading
from typing import Any

import hami
import pytest
from hami.observe import Histogram
from running import each, run_script

import hami_tools

CLASSES = ("RequestError", "ZeroDivisionError")


def benchmark_of(backend: Any, *data: Any) -> hami_tools.ThroughputBenchmark:
    benchmark = hami_tools.ThroughputBenchmark(backend)
    for value in data:
        benchmark.add_input({"data": value})
    return benchmark


def test_the_result_has_the_figures_of_torch() -> None:
    with hami.pipe("Identity") as pipe:
        result = benchmark_of(pipe, 1, 2).benchmark(num_calling_threads=3, num_warmup_iters=4, num_iters=200)
        assert pipe.stats()["default"].completed == 200 + 3 * 4
    assert (result.num_iters, result.num_calling_threads, result.failed) == (200, 3, {})
    assert result.latency_ms.count == 200
    assert result.iters_per_second == pytest.approx(200 / result.total_time_seconds)
    assert result.latency_avg_ms == pytest.approx(result.latency_ms.sum / 200)
    assert 0 < result.latency_ms.p50 <= result.latency_ms.p90 <= result.latency_ms.p99 <= result.latency_ms.max
    assert "200, from 3 threads" in repr(result)


def test_the_calling_threads_belong_to_the_core() -> None:
    names: set[str] = set()

    @hami.register("TestThroughputThread")
    class Named(hami.Backend):
        thread = "concurrent"

        def forward(self, batch: list[Any]) -> None:
            names.add("python" if threading.current_thread() in before else "core")
            for item in batch:
                item["result"] = 1

    before = set(threading.enumerate())
    with hami.pipe("TestThroughputThread") as pipe:
        benchmark_of(pipe, 1).benchmark(num_calling_threads=2, num_iters=20)
    assert names == {"core"}


def test_requests_that_fail_are_counted_by_kind() -> None:
    def divide(data: Any) -> float:
        if data is None:
            raise hami.RequestError("nothing to divide")
        return 1 / int(data)

    each(divide, "TestThroughputDivide")
    with hami.pipe("TestThroughputDivide") as pipe:
        result = benchmark_of(pipe, 1, 0, None).benchmark(num_iters=300, seed=1)
    assert sorted(result.failed) == list(CLASSES)
    assert sum(result.failed.values()) + result.latency_ms.count == 300
    assert result.examples["ZeroDivisionError"].endswith("division by zero")
    assert "failed with RequestError: nothing to divide" in repr(result)


def test_without_a_completed_request_there_is_no_latency() -> None:
    each(lambda data: 1 / 0, "TestThroughputNever")
    with hami.pipe("TestThroughputNever") as pipe:
        result = benchmark_of(pipe, 1).benchmark(num_iters=10)
    assert result.failed == {"ZeroDivisionError": 10}
    assert result.latency_avg_ms != result.latency_avg_ms  # NaN
    assert result.iters_per_second == 0


def test_a_function_is_called_from_threads_of_python() -> None:
    def function(request: dict[str, Any]) -> None:
        if request["data"] == 0:
            raise ValueError("zero")

    result = benchmark_of(function, 0, 1).benchmark(num_calling_threads=4, num_warmup_iters=1, num_iters=100)
    assert result.num_iters == 100
    assert result.latency_ms.count + result.failed["ValueError"] == 100


def test_an_input_is_not_changed_by_the_benchmark() -> None:
    request = {"data": "page"}
    with hami.pipe("Identity") as pipe:
        benchmark = hami_tools.ThroughputBenchmark(pipe)
        benchmark.add_input(request)
        benchmark.benchmark(num_iters=5)
    assert request == {"data": "page"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_iters": 0}, "num_iters must be an int of at least 1, got 0"),
        ({"num_calling_threads": 0}, "num_calling_threads must be an int of at least 1, got 0"),
        ({"num_warmup_iters": -1}, "num_warmup_iters must be an int of at least 0, got -1"),
        ({"num_iters": 1.5}, "num_iters must be an int of at least 1, got 1.5"),
    ],
)
def test_numbers_out_of_range_are_rejected(arguments: dict[str, Any], message: str) -> None:
    with hami.pipe("Identity") as pipe, pytest.raises(ValueError, match=message):
        benchmark_of(pipe, 1).benchmark(**arguments)


def test_wrong_inputs_are_rejected() -> None:
    with hami.pipe("Identity") as pipe:
        with pytest.raises(ValueError, match="there is no input; call add_input"):
            hami_tools.ThroughputBenchmark(pipe).benchmark()
        with pytest.raises(hami.DataTypeError, match="an input is a dict"):
            hami_tools.ThroughputBenchmark(pipe).add_input([1])  # type: ignore[arg-type]
        with pytest.raises(hami.DataTypeError, match="event"):
            hami_tools.ThroughputBenchmark(pipe).add_input({"data": 1, "event": hami.Event()})
    with pytest.raises(hami.DataTypeError, match="takes a pipe or a function, got int"):
        hami_tools.ThroughputBenchmark(3)  # type: ignore[arg-type]
    with pytest.raises(hami.PipeClosed):
        benchmark_of(pipe, 1).benchmark(num_iters=3)


def test_ctrl_c_ends_a_benchmark() -> None:
    done = run_script(
        """
        import os, signal, threading
        import hami, hami_tools

        @hami.register
        class Interrupting(hami.Backend):
            sent = False

            def forward(self, batch):
                if not self.sent:
                    self.sent = True
                    os.kill(os.getpid(), signal.SIGINT)
                for item in batch:
                    item["result"] = 1

        with hami.pipe("Interrupting") as pipe:
            benchmark = hami_tools.ThroughputBenchmark(pipe)
            benchmark.add_input({"data": 1})
            try:
                benchmark.benchmark(num_iters=10**9)
            except KeyboardInterrupt:
                print("interrupted")
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def test_objects_of_python_are_released_while_a_benchmark_runs() -> None:
    class Held:
        alive = most = 0

        def __init__(self) -> None:
            Held.alive += 1
            Held.most = max(Held.most, Held.alive)

        def __del__(self) -> None:
            Held.alive -= 1

    each(lambda data: Held(), "TestThroughputHeld")
    with hami.pipe("TestThroughputHeld") as pipe:
        benchmark_of(pipe, 1).benchmark(num_calling_threads=2, num_iters=20_000)
    assert Held.alive <= 2
    assert Held.most < 20_000


def test_histograms_can_be_merged_and_subtracted() -> None:
    one = Histogram(7.0, [(1.0, 1.0, 3), (4.0, 4.0, 1)])
    other = Histogram(8.0, [(4.0, 4.0, 2)])
    assert one + other == Histogram(15.0, [(1.0, 1.0, 3), (4.0, 4.0, 3)])
    assert (one + other) - one == other
    assert [(one + other).quantile(part) for part in (0, 0.5, 0.51, 1)] == [1.0, 1.0, 4.0, 4.0]
    assert Histogram().as_dict() == {"count": 0}
    with pytest.raises(ValueError, match="from 0 to 1, got 99"):
        one.quantile(99)
    with pytest.raises(AttributeError, match="snapshot"):
        one.sum = 3.0  # type: ignore[misc]


def test_a_node_has_a_time_for_each_of_its_backends() -> None:
    with hami.pipe({"pages": {"backend": "S[Identity,Add(size=3)]", "max": 4}}) as pipe:
        pipe([{"data": number} for number in range(8)])
        node = pipe.stats()["pages"]
    assert list(node.backend_ms) == ["Identity", "Add"]
    assert 0 < sum(node.backend_ms.values()) <= node.compute_ms
    assert node.queue_ms.count == node.latency_ms.count == 8
    assert node.batch_sizes.sum == 8
    assert node.batch_sizes.max <= 4
    assert node.batch_ms.count == node.batches
    assert node.batch_ms.sum == pytest.approx(node.compute_ms)
    shown = node.as_dict()
    assert list(shown["queue_ms"]) == ["count", "mean", "p50", "p90", "p99", "p99.9", "max"]
    assert "# time of each backend, in ms" in repr(node)
