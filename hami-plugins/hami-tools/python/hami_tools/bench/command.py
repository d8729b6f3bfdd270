"""The command `hami bench`: measures a pipeline under loads, in scenarios, or against another one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hami.config
from hami import ConfigError, Pipe
from hami.cli import Input, describe_exception, json_of, printable, traced
from hami.observe.description import uses_python
from hami.progress import Progress

from hami_tools.bench.ceiling import NodeCeiling, ceiling_settings, measure_ceilings
from hami_tools.bench.comparison import compare_results, compare_throughput
from hami_tools.bench.loads import loads_of
from hami_tools.bench.losses import losses
from hami_tools.bench.point import Point, measure, measure_until_stable
from hami_tools.bench.report import print_result, regressions
from hami_tools.bench.scenarios import run_scenario
from hami_tools.explanation import sentences_about
from hami_tools.measured import Request, built, check_outputs, check_some_input_runs, config_of, readable_inputs

MAX_FAILING_INPUTS = 3  # that are named
NAMING_TIMEOUT = 10.0  # seconds for each input, when those that fail are named


def bench(arguments: argparse.Namespace) -> int:
    """Measure, print a table or JSON, and return 1 if a request failed or a figure is worse than the stored one."""
    _check_extras(arguments)
    check_outputs(arguments, "output", "html", "plot")
    stored = _stored(arguments.against) if arguments.against else []
    loads = loads_of(arguments)
    inputs, unread = readable_inputs(arguments)
    requests = [request for _, request in inputs]
    found: dict[str, Any] = {"source": printable(arguments.source), "slo_s": arguments.slo}
    ceilings = _ceilings(inputs, arguments)
    with built(arguments.source, arguments) as pipe, traced(pipe, arguments):
        if arguments.compare is None:
            check_some_input_runs(pipe, inputs)
        if arguments.compare is not None:
            points = _compare(pipe, requests, loads, arguments, found)
        elif arguments.scenario:
            points = _run_scenarios(pipe, requests, arguments, found)
        else:
            points = _measure_all(pipe, requests, loads, arguments)
        _add_findings(found, points, ceilings, pipe)
        found["failing_inputs"] = _failing(pipe, inputs) if any(point.failed for point in points) else []
    found["worse"] = regressions(stored, found["points"], arguments.tolerance)
    print(json_of(found)) if arguments.json else print_result(found)
    _write(found, arguments)
    failed = any(point["failed"] for point in [*found["points"], *found.get("other_points", ())])
    return 1 if unread or failed or found["worse"] else 0


def _add_findings(found: dict[str, Any], points: Sequence[Point], ceilings: Sequence[NodeCeiling], pipe: Pipe) -> None:
    """Add the figures of all points, and what limits the best one."""
    description = pipe.describe()
    found["points"] = [point.as_dict() for point in points]
    if ceilings:
        in_python = any(map(uses_python, description["nodes"][ceilings[0].node]["backends"]))
        found["ceilings"] = [node.as_dict() for node in ceilings]
        found["losses"] = [
            {"load": str(point.load), **losses(ceilings[0], point, in_python=in_python).as_dict()}
            for point in points
            if point.completed
        ]
    best = max(points, key=lambda point: point.throughput)
    alternating = "ratios" in found  # the statistics include the time in which the other pipe ran
    found["explanation"] = [] if alternating else sentences_about(description, best.after, best.before)
    found["description"] = description
    found["stats"] = {name: node.as_dict() for name, node in pipe.stats().items()}


def _ceilings(inputs: list[tuple[Input, Request]], arguments: argparse.Namespace) -> list[NodeCeiling]:
    """Measure the backends alone, in a pipe of their own."""
    if arguments.no_ceiling or arguments.compare is not None:
        return []
    nodes = hami.config.describe(config_of(arguments.source, arguments))["nodes"]
    with (
        built(arguments.source, arguments, list(ceiling_settings(nodes))) as pipe,
        Progress(1.0, "measuring the backends alone"),
    ):
        check_some_input_runs(pipe, inputs)
        return measure_ceilings(pipe, [request for _, request in inputs], arguments.seconds)


def _measure_all(
    pipe: Pipe, requests: list[Request], loads: Sequence[Any], arguments: argparse.Namespace
) -> list[Point]:
    points = []
    with Progress(len(loads), "measuring") as progress:
        for number, load in enumerate(loads):
            progress.update(number, str(load))
            if arguments.stable is None:
                points.append(measure(pipe, requests, load, arguments.seconds, arguments.slo))
            else:
                points.append(
                    measure_until_stable(pipe, requests, load, arguments.seconds, arguments.slo, arguments.stable)
                )
    return points


def _run_scenarios(
    pipe: Pipe, requests: list[Request], arguments: argparse.Namespace, found: dict[str, Any]
) -> list[Point]:
    results = []
    with Progress(len(arguments.scenario), "measuring") as progress:
        for number, name in enumerate(arguments.scenario):
            progress.update(number, name)
            results.append(run_scenario(name, pipe, requests, arguments.seconds, arguments.slo))
    found["scenarios"] = [
        {"scenario": result.scenario, "metric": result.metric, "value": result.value, "unit": result.unit}
        for result in results
    ]
    return [result.point for result in results]


def _compare(
    pipe: Pipe, requests: list[Request], loads: Sequence[Any], arguments: argparse.Namespace, found: dict[str, Any]
) -> list[Point]:
    """Measure the pipe and another one alternately; return the points of the pipe."""
    points, others = [], []
    found["compared_with"] = printable(arguments.compare)
    found["ratios"] = []
    with built(arguments.compare, arguments) as other, Progress(len(loads), "comparing") as progress:
        found["difference"] = compare_results((pipe, other), requests).as_dict()
        for number, load in enumerate(loads):
            progress.update(number, str(load))
            ratio, one, two = compare_throughput((pipe, other), requests, load, arguments.seconds, arguments.rounds)
            found["ratios"].append({"load": str(load), **ratio.as_dict()})
            points.append(one)
            others.append(two.as_dict())
    found["other_points"] = others
    return points


def _failing(pipe: Pipe, inputs: list[tuple[Input, Request]]) -> list[dict[str, str]]:
    """Run the inputs one by one and return the first that fail, each with its exception."""
    failing = []
    for entry, request in inputs:
        try:
            pipe(dict(request), timeout=NAMING_TIMEOUT)
        except Exception as error:
            failing.append({"input": entry.label, "error": describe_exception(error)})
            if len(failing) == MAX_FAILING_INPUTS:
                break
    return failing


def _stored(path: str) -> list[dict[str, Any]]:
    try:
        points = json.loads(Path(path).read_text(encoding="utf-8"))["points"]
        return [
            {"load": point["load"], "throughput": float(point["throughput"]), "latency_ms": dict(point["latency_ms"])}
            for point in points
        ]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(
            f"{printable(path)} is not a result of hami bench; write one with hami bench … --output FILE"
        ) from None


def _check_extras(arguments: argparse.Namespace) -> None:
    """Raise ConfigError before anything is measured if a package for the output is missing."""
    if arguments.plot:
        from hami_tools.bench.plot import check_matplotlib

        check_matplotlib()


def _write(found: dict[str, Any], arguments: argparse.Namespace) -> None:
    if arguments.output:
        Path(arguments.output).write_text(json_of(found) + "\n", encoding="utf-8")
    if arguments.html:
        from hami_tools.bench.page import page

        Path(arguments.html).write_text(page(found), encoding="utf-8")
    if arguments.plot:
        from hami_tools.bench.plot import plot

        plot(found, arguments.plot)
