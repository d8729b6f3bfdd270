"""The ceiling of a pipe, the losses by cause, and the sentences of `hami_tools.explain`."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import hami
import pytest
from hami.cli import main
from hami.observe import Histogram, NodeStats
from running import backend

import hami_tools
from hami_tools.bench import losses as losses_module
from hami_tools.bench.ceiling import NodeCeiling, ceiling_settings, measure_ceilings, sizes_up_to
from hami_tools.bench.load import Load
from hami_tools.bench.losses import CAUSES, Losses, losses
from hami_tools.bench.point import Point, measure
from hami_tools.machine import cpu_quota, memory_limit

BATCH_S = 0.004  # of a batch of any size: the rate grows with the batch
batch_times: list[float] = []  # how long they took: more than BATCH_S where other programs use the processors


def _device(batch: list[Any]) -> None:
    start = time.monotonic()
    time.sleep(BATCH_S)  # stands for the work of a device
    batch_times.append(time.monotonic() - start)
    for item in batch:
        item["result"] = item["data"]


@pytest.fixture(scope="module")
def device() -> str:
    backend(_device, "TestDevice", max=8)
    return "TestDevice"


def measured_once(config: dict[str, Any], load: Load, seconds: float = 0.2) -> tuple[list[NodeCeiling], Losses]:
    """Measure the ceilings of a pipe and the losses of a load, as `hami bench` does."""
    with hami.pipe(config) as pipe:
        nodes = pipe.describe()["nodes"]
    alone = {name: dict(node) for name, node in config.items()}
    for setting in ceiling_settings(nodes):
        place, _, value = setting.partition("=")
        name, _, key = place.partition(".")
        alone[name][key] = value
    with hami.pipe(alone) as pipe:
        ceilings = measure_ceilings(pipe, [{"data": 1}], 0.1)
    with hami.pipe(config) as pipe:
        point = measure(pipe, [{"data": 1}], load, seconds)
    return ceilings, losses(ceilings[0], point, in_python=True)


def measured(config: dict[str, Any], load: Load, seconds: float = 0.2) -> tuple[list[NodeCeiling], Losses]:
    """Measure until the device kept its time: other programs disturb the comparison of two measurements."""
    for _ in range(20):
        batch_times.clear()
        found = measured_once(config, load, seconds)
        if statistics.quantiles(batch_times, n=10)[-1] < 1.25 * BATCH_S:
            return found
    pytest.skip("other programs use the processors: in 20 measurements the device never kept its time")


@pytest.mark.parametrize(
    ("keys", "load", "cause"),
    [
        ({}, Load(clients=1), "small_batches"),
        ({"max": 1, "instance_num": 4}, Load(clients=1), "idle"),
        ({"max": 1}, Load(rate=30.0), "idle"),
        ({"batching": "greedy", "batching_timeout": "60ms"}, Load(clients=7), "queue"),
    ],
)
def test_the_losses_of_a_deterministic_pipe_add_up_to_the_gap(
    device: str, keys: dict[str, Any], load: Load, cause: str
) -> None:
    ceilings, lost = measured({"work": {"backend": device, **keys}}, load)
    assert abs(sum(lost.causes.values()) - lost.gap) <= 0.05 * abs(lost.gap)
    assert next(iter(lost.causes)) == cause
    assert set(lost.causes) <= set(CAUSES)
    assert ceilings[0].plateau == keys.get("max", 8)


def test_time_in_other_nodes_is_host_work(device: str) -> None:
    node = {"backend": device, "max": 1}
    ceilings, lost = measured({"a": {**node, "next": "b"}, "b": node}, Load(clients=1))
    assert {ceiling.node for ceiling in ceilings} == {"a", "b"}
    assert next(iter(lost.causes)) == "host_work"
    assert abs(sum(lost.causes.values()) - lost.gap) <= 0.05 * lost.gap


def test_the_ceiling_has_one_time_for_each_batch_size(device: str) -> None:
    ceilings, _ = measured({"work": {"backend": device, "max": 6, "instance_num": 2}}, Load(clients=1), 0.02)
    assert [list(ceiling.batch_ms) for ceiling in ceilings] == [[1, 2, 4, 6]]
    assert ceilings[0].instances == 2
    assert all(value >= BATCH_S * 1e3 for value in ceilings[0].batch_ms.values())


def test_a_filter_divides_the_items_of_a_node(device: str) -> None:
    ceiling = NodeCeiling("a", 2, {1.0: 4.0, 4.0: 4.0}, 0.5)
    assert ceiling.rate == pytest.approx(2 * 4 / 0.004 / 0.5)
    assert ceiling.expected_ms(2.5) == 4.0
    assert ceiling.expected_ms(8.0) == 8.0  # beyond what was measured: in proportion
    assert ceiling.plateau == 4.0
    assert sizes_up_to(6) == [1, 2, 4, 6]
    assert sizes_up_to(1) == [1]


def stats(**values: Any) -> NodeStats:
    return NodeStats({"uptime_s": 1.0, **values})


def busy_point(cpu_s: float, load: Load | None = None, **values: Any) -> Point:
    """Return a point of one second in which two instances ran 100 batches of 8 items, each 20 ms instead of 10."""
    after = stats(
        batches=100,
        batch_items=800,
        compute_ms=2000.0,
        batch_sizes=(800.0, [(8.0, 8.0, 100)]),
        queue_ms=(8000.0, [(10.0, 10.0, 800)]),
        latency_ms=(24000.0, [(30.0, 30.0, 800)]),
    )
    latency = Histogram(24000.0, [(30.0, 30.0, 800)])
    fixed = {"completed": 800, "good": 800, "failed": {}, "examples": {}, "late_ms": 0.0, "rss_mib": 1.0}
    return Point(
        **{
            "load": load or Load(clients=24),
            "elapsed_s": 1.0,
            "latency_ms": latency,
            "cpu_s": cpu_s,
            "before": {"work": stats()},
            "after": {"work": after},
            **fixed,
            **values,
        }
    )


@pytest.mark.parametrize(
    ("cpu_s", "in_python", "cause"),
    [
        (1.0, True, "gil"),
        (1.0, False, "contention"),
        (3.9, True, "cpu"),
        (3.9, False, "cpu"),
        (0.1, True, "contention"),
    ],
)
def test_what_instances_compete_for_is_told_by_the_cpus_in_use(
    monkeypatch: pytest.MonkeyPatch, cpu_s: float, in_python: bool, cause: str
) -> None:
    monkeypatch.setattr(losses_module, "cpus", lambda: 4.0)
    lost = losses(NodeCeiling("work", 2, {8.0: 10.0}, 1.0), busy_point(cpu_s), in_python=in_python)
    assert lost.ceiling == 1600
    assert lost.achieved == 800
    assert lost.causes[cause] == pytest.approx(800)
    assert sum(lost.causes.values()) == pytest.approx(lost.gap)


def test_failed_requests_and_an_offer_below_the_ceiling_are_causes() -> None:
    ceiling = NodeCeiling("work", 2, {8.0: 10.0}, 1.0)
    lost = losses(ceiling, busy_point(1.0, completed=600, failed={"ValueError": 200}), in_python=False)
    assert lost.causes["failed"] == pytest.approx(200)
    assert sum(lost.causes.values()) == pytest.approx(lost.gap)
    lost = losses(ceiling, busy_point(1.0, load=Load(rate=800.0)), in_python=False)
    assert lost.causes["idle"] == pytest.approx(800)
    assert sum(lost.causes.values()) == pytest.approx(lost.gap)


def test_a_wrong_estimate_of_batches_alone_is_no_cause_larger_than_the_gap() -> None:
    # Alone, batches of 8 took 10 ms and those of 1 took 500 ms; in the measurement batches of 8 took less.
    for alone in ({8.0: 10.0}, {1.0: 500.0, 8.0: 10.0}, {1.0: 1.0, 8.0: 500.0}):
        lost = losses(NodeCeiling("work", 2, alone, 1.0), busy_point(1.0), in_python=False)
        assert sum(lost.causes.values()) == pytest.approx(lost.gap)
        assert all(abs(rate) <= abs(lost.gap) * (1 + 1e-9) for rate in lost.causes.values())
        assert len({rate > 0 for rate in lost.causes.values() if rate}) <= 1


def explained(node: NodeStats, before: NodeStats | None = None, **keys: Any) -> list[str]:
    from hami_tools.explanation import sentences_about

    with hami.pipe({"work": {"backend": "S[Add(size=1),Identity]", **keys}}) as pipe:
        description = pipe.describe()
    return sentences_about(description, {"work": node}, None if before is None else {"work": before})


def test_the_busiest_node_and_its_slow_backend_are_named() -> None:
    times = {"Add": 700.0, "Identity": 280.0}
    node = stats(submitted=100, batches=100, batch_items=100, compute_ms=980.0, backend_ms=times)
    assert explained(node) == [
        "work limits the throughput: its 1 instance is busy 98% of the time. Raise instance_num if there are cores or "
        "device memory for it, or make its backends faster.",
        "work: Add takes 71% of the time of its backends. In a separate node it has its own instances and "
        "batches, and the others run meanwhile.",
    ]


@pytest.mark.parametrize(
    ("values", "keys", "sentence"),
    [
        ({"batch_items": 800}, {"max": 8}, "Its batches are full (8 items): raise max or instance_num."),
        (
            {"batch_overhead_ms": 4.0, "per_item_ms": 0.2, "batch_items": 200},
            {"max": 8},
            "A batch costs 4 ms and 0.2 ms for each item, and has 2 items: more requests at a time make larger batches",
        ),
        (
            {"compute_ms": 300.0},
            {},
            "The callers limit the throughput: the busiest node, work, is busy 30% of the time.",
        ),
        (
            {"compute_ms": 700.0, "queue_ms": (900.0, [(9.0, 9.0, 100)]), "batch_ms": (700.0, [(7.0, 7.0, 100)])},
            {},
            "The busiest node, work, is busy only 70% of the time although requests wait in its queue",
        ),
        ({"compute_ms": 700.0}, {}, "No node is busy all the time: the busiest, work, is busy 70% of it."),
        (
            {"batch_items": 800, "counters": {"groups": 310}},
            {"max": 8},
            "work: batches of 8 items run as 3.1 groups each, because the shapes of the requests differ.",
        ),
        (
            {"counters": {"padding_differences": 1}},
            {},
            "work: padding changed a result, so requests of unequal length do not share runs any more.",
        ),
        (
            {"batch_items": 200, "closed_timeout": 90},
            {"max": 8, "batching_timeout": "5ms"},
            "work: most batches wait for batching_timeout (5 ms) and start with 2 of 8 items.",
        ),
        (
            {"batch_items": 200, "closed_target_size": 90, "target_batch_size": 8},
            {"max": 8},
            "batches start with 2 items although more requests wait, because the next one does not fit",
        ),
        ({"waiting": 16}, {"max_queue_size": 16}, "work: the queue is full: 16 requests wait, max_queue_size is 16."),
        (
            {"rejected": 7},
            {"max_queue_size": 16, "on_full": "reject"},
            "work: the queue is full: 7 requests were rejected, max_queue_size is 16.",
        ),
        (
            {"queue_ms": (9000.0, [(90.0, 90.0, 100)]), "batch_ms": (1000.0, [(10.0, 10.0, 100)])},
            {},
            "work: a request waits 90 ms in the queue and runs 10 ms on average.",
        ),
        ({"submitted": 400, "expired": 226}, {}, "work: 226 of 400 requests expired."),
        ({"retried": 8}, {}, "work: 8 requests ran again alone because a batch failed."),
    ],
)
def test_each_limit_has_a_sentence(values: dict[str, Any], keys: dict[str, Any], sentence: str) -> None:
    node = stats(**{"submitted": 100, "batches": 100, "batch_items": 100, "compute_ms": 950.0, **values})
    assert any(sentence in found for found in explained(node, **keys))


def test_a_short_queue_of_an_idle_node_is_not_worth_a_sentence() -> None:
    times = {"queue_ms": (5.0, [(0.05, 0.05, 100)]), "batch_ms": (1.0, [(0.01, 0.01, 100)])}
    node = stats(**{"submitted": 100, "batches": 100, "batch_items": 100, "compute_ms": 1.0, **times})
    assert not any("waits" in found for found in explained(node))


def test_a_node_none_of_whose_batches_ends_is_named() -> None:
    before = stats(submitted=60, batches=50, running=3)
    sentences = explained(stats(submitted=70, batches=50, running=3, waiting=10), before)
    assert sentences == [
        "work: no batch has ended, and 3 requests run: they take long, or a backend hangs. hami top shows which."
    ]


def test_requests_of_one_item_are_not_called_too_large() -> None:
    node = stats(submitted=150, completed=150, batches=100, batch_items=150, closed_target_size=90, target_batch_size=6)
    assert not any("request_size" in found for found in explained(node, max=6))


def test_only_what_happened_since_a_snapshot_is_explained() -> None:
    before = stats(submitted=50, batches=50, expired=40)
    after = NodeStats({"submitted": 60, "batches": 60, "expired": 40, "compute_ms": 2000.0, "uptime_s": 3.0})
    assert not any("expired" in sentence for sentence in explained(after, before))
    assert any("expired" in sentence for sentence in explained(after))


def test_a_pipe_of_python_backends_explains_that_they_share_the_gil(device: str) -> None:
    with hami.pipe({"work": {"backend": f"S[Identity,{device}]", "max": 1, "instance_num": 4}}) as pipe:
        assert hami_tools.explain(pipe) == ["No request has run: call the pipe, then explain it."]
        before = pipe.stats()
        pipe([{"data": number} for number in range(40)])
        sentences = hami_tools.explain(pipe, since=before)
    assert any(sentence.startswith("Python backends share the GIL: ") for sentence in sentences)


def test_hami_bench_prints_the_ceiling_the_losses_and_an_explanation(
    capsys: pytest.CaptureFixture[str], device: str
) -> None:
    arguments = ["bench", device, "--text", "a", "--clients", "1", "--seconds", "0.1"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "batch of default" in out
    assert "plateau batch 8, ceiling " in out
    assert "waiting for batches: they start below the plateau size" in out
    assert "throughput" in out.splitlines()[-1]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ceilings"][0]["plateau_batch"] == 8
    lost = found["losses"][0]
    assert abs(sum(lost["causes"].values()) - lost["gap"]) <= 0.05 * lost["gap"]
    assert main([*arguments, "--json", "--no-ceiling"]) == 0
    assert "ceilings" not in json.loads(capsys.readouterr().out)


def test_a_pipe_whose_requests_all_fail_has_no_ceiling(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(batch: list[Any]) -> None:
        raise ValueError("always")

    backend(fail, "TestCeilingFails")
    status = main(["bench", "TestCeilingFails", "--text", "a", "--clients", "1", "--seconds", "0.02"])
    found = capsys.readouterr()
    assert (status, found.out) == (1, "")
    assert "--text fails: ValueError: always" in found.err


def test_the_limits_of_a_container_are_read(tmp_path: Any) -> None:
    assert (cpu_quota(tmp_path), memory_limit(tmp_path)) == (None, None)
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("1073741824\n")
    assert (cpu_quota(tmp_path), memory_limit(tmp_path)) == (1.5, 1 << 30)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert (cpu_quota(tmp_path), memory_limit(tmp_path)) == (None, None)
