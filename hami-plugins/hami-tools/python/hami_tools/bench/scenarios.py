"""The four scenarios of MLPerf Inference: how requests arrive, and which figure counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hami import Pipe

from hami_tools.bench.load import Load
from hami_tools.bench.point import Point, measure

SCENARIOS = ("single-stream", "multi-stream", "server", "offline")
STREAMS = 8  # requests of one query of the multi-stream scenario, as MLPerf has it
SEARCH_STEPS = 7  # of the server scenario: the rate is then known within about 2 %
DEFAULT_SLO = 0.1  # seconds, of the server scenario
TRIAL = 64  # requests at a time of the measurement that estimates the throughput
TRIAL_SECONDS = 0.3
HEADROOM = 1.25  # by which the estimate may be too low
MAX_REQUESTS = 1_000_000  # of one measurement, which holds all of them in memory


@dataclass(frozen=True)
class ScenarioResult:
    """The figure of a scenario, and the measurement that it is from."""

    scenario: str
    metric: str
    value: float
    unit: str
    point: Point


def run_scenario(
    scenario: str, pipe: Pipe, inputs: Sequence[Mapping[str, Any]], seconds: float, slo: float | None
) -> ScenarioResult:
    """Run one scenario.

    Args:
        scenario: One of `SCENARIOS`.
        pipe: The pipe.
        inputs: Requests, chosen at random.
        seconds: Time of each measurement.
        slo: Seconds that the 99th percentile of the server scenario may have; None: 0.1.
    """
    if scenario == "single-stream":
        point = measure(pipe, inputs, Load(), seconds, slo)
        return ScenarioResult(scenario, "p90 latency", point.latency_ms.p90, "ms", point)
    if scenario == "multi-stream":
        point = measure(pipe, inputs, Load(per_call=STREAMS), seconds, slo)
        return ScenarioResult(scenario, "p99 latency of a query", point.latency_ms.p99, "ms", point)
    if scenario == "offline":
        return _offline(pipe, inputs, seconds, slo)
    return _server(pipe, inputs, seconds, DEFAULT_SLO if slo is None else slo)


def _offline(pipe: Pipe, inputs: Sequence[Mapping[str, Any]], seconds: float, slo: float | None) -> ScenarioResult:
    """One call with all requests, as many as the pipe completes in the given time."""
    trial = measure(pipe, inputs, Load(per_call=TRIAL), min(TRIAL_SECONDS, seconds), slo)
    requests = min(MAX_REQUESTS, max(TRIAL, int(trial.throughput * seconds)))
    point = measure(pipe, inputs, Load(per_call=requests, calls=1), seconds, slo)
    return ScenarioResult("offline", "throughput", point.throughput, "per second", point)


def _server(pipe: Pipe, inputs: Sequence[Mapping[str, Any]], seconds: float, slo: float) -> ScenarioResult:
    """The highest rate of Poisson arrivals at which the 99th percentile is within the objective."""
    most = measure(pipe, inputs, Load(clients=TRIAL), min(TRIAL_SECONDS, seconds), slo).throughput or 1.0
    low, high = 0.0, min(MAX_REQUESTS / seconds, most * HEADROOM)
    best, last = None, None
    for _ in range(SEARCH_STEPS):
        rate = float(f"{(low + high) / 2:.3g}")
        last = measure(pipe, inputs, Load(rate=rate), seconds, slo)
        if not last.failed and last.completed and last.latency_ms.p99 <= slo * 1e3:
            best, low = last, rate
        else:
            high = rate
    assert last is not None
    metric = f"highest rate with p99 within {slo * 1e3:g} ms"
    return ScenarioResult("server", metric, low, "per second", best or last)
