"""The command `hami bench`: measures a pipeline under closed and open loops."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import hami
from hami import _core
from hami._cli.bench_report import ceiling_rows, failure_lines, loss_lines, point_rows, regressions
from hami._cli.inputs import Input, inputs_of
from hami._cli.main import report
from hami._cli.show import json_of
from hami._cli.source import read_source
from hami._cli.terminal import print_lines, print_table
from hami._config.reader import LoadedConfig
from hami._errors import ConfigError, RequestError
from hami._plugins.messages import describe_exception
from hami._runtime.pipe import Pipe
from hami._text import printable
from hami.observe.bench.ceiling import NodeCeiling, ceiling_settings, measure_ceilings
from hami.observe.bench.load import Load
from hami.observe.bench.losses import losses
from hami.observe.bench.point import Point, measure, measure_until_stable
from hami.observe.explanation import explain, uses_python
from hami.progress import Progress

CLIENTS = (1, 4, 16)  # if no load is given
MAX_FAILING_INPUTS = 3  # that are named
NAMING_TIMEOUT = 10.0  # seconds for each input, when those that fail are named

Request = dict[str, Any]


def bench(arguments: argparse.Namespace) -> int:
    """Measure, print a table or JSON, and return 1 if a request failed or a figure is worse than the stored one."""
    stored = _stored(arguments.against) if arguments.against else []
    loads = _loads(arguments)
    inputs, unread = _readable(inputs_of(arguments))
    requests = [request for _, request in inputs]
    found: dict[str, Any] = {"source": printable(arguments.source)}
    ceilings = _ceilings(requests, arguments)
    with built(arguments.source, arguments) as pipe:
        points = _measure_all(pipe, requests, loads, arguments)
        found["points"] = [point.as_dict() for point in points]
        if ceilings:
            found["ceilings"] = [node.as_dict() for node in ceilings]
            found["losses"] = _losses(ceilings[0], points, pipe)
        found["explanation"] = _explain(pipe, points)
        found["failing_inputs"] = _failing(pipe, inputs) if any(point.failed for point in points) else []
        found["stats"] = {name: node.as_dict() for name, node in pipe.stats().items()}
    found["worse"] = regressions(stored, found["points"], arguments.tolerance)
    _print(found, points, arguments)
    if arguments.output:
        Path(arguments.output).write_text(json_of(found) + "\n", encoding="utf-8")
    return 1 if unread or found["worse"] or any(point.failed for point in points) else 0


def built(source: str, arguments: argparse.Namespace, settings: Sequence[str] = ()) -> Pipe:
    """Return the pipe of a source, with --import, --set and further settings."""
    return hami.pipe(_config(source, arguments, settings))


def _config(source: str, arguments: argparse.Namespace, settings: Sequence[str] = ()) -> LoadedConfig:
    config, problems = read_source(source, [*arguments.set, *settings], arguments.imports)
    if problems:
        raise ConfigError.of(problems)
    return config


def _ceilings(requests: list[Request], arguments: argparse.Namespace) -> list[NodeCeiling]:
    """Measure the backends alone, in a pipe of their own."""
    if arguments.no_ceiling:
        return []
    nodes = _core.describe(_config(arguments.source, arguments))["nodes"]
    with (
        built(arguments.source, arguments, list(ceiling_settings(nodes))) as pipe,
        Progress(1.0, "measuring the backends alone"),
    ):
        return measure_ceilings(pipe, requests, arguments.seconds)


def _losses(ceiling: NodeCeiling, points: list[Point], pipe: Pipe) -> list[dict[str, Any]]:
    backends = pipe.describe()["nodes"][ceiling.node]["backends"]
    in_python = any(map(uses_python, backends))
    return [
        {"load": str(point.load), **losses(ceiling, point, in_python=in_python).as_dict()}
        for point in points
        if point.completed
    ]


def _explain(pipe: Pipe, points: list[Point]) -> list[str]:
    """Explain the load with the highest throughput."""
    best = max(points, key=lambda point: point.throughput)
    return explain(pipe.describe(), best.after, best.before)


def _readable(inputs: Iterable[Input]) -> tuple[list[tuple[Input, Request]], int]:
    """Return the inputs that can be read with their requests, and the number of the others, which are reported."""
    readable, unread = [], 0
    for entry in inputs:
        try:
            readable.append((entry, entry.request()))
        except RequestError as error:
            unread += 1
            report(error, entry.label)
    if not readable:
        raise ConfigError("no input can be read")
    return readable, unread


def _loads(arguments: argparse.Namespace) -> list[Load]:
    loads = [Load(rate=rate) for rate in arguments.rate]
    if arguments.arrivals is not None:
        loads.append(Load(arrivals=_arrivals(arguments.arrivals)))
    clients = arguments.clients or ([] if loads else CLIENTS)
    return [*(Load(clients=number) for number in clients), *loads]


def _arrivals(path: str) -> tuple[float, ...]:
    """Return the moments in a file with one number of seconds in each line."""
    moments = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            moment = float(line)
        except ValueError:
            moment = -1.0
        if not 0 <= moment < math.inf:
            raise ConfigError(
                f"{printable(path)}, line {number}: expected seconds from 0 on, got {line.strip()[:40]!r}"
            )
        moments.append(moment)
    if not moments:
        raise ConfigError(f"{printable(path)} is empty; write one moment in seconds into each line")
    return tuple(sorted(moments))


def _measure_all(pipe: Pipe, requests: list[Request], loads: list[Load], arguments: argparse.Namespace) -> list[Point]:
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
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{printable(path)} is not a result of hami bench; write one with hami bench … --output FILE"
        ) from None


def _print(found: dict[str, Any], points: list[Point], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json_of(found))
        return
    print_table(*point_rows(points, arguments.slo))
    if "losses" in found:
        print()
        print_table(*ceiling_rows(found["ceilings"][0]))
        print_lines(loss_lines(found["losses"], found["ceilings"][0]))
    print()
    print_lines(found["explanation"])
    print_lines(failure_lines(points, found["failing_inputs"]))
    print_lines(f"worse: {line}" for line in found["worse"])
