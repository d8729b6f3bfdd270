"""Declares the arguments of the commands that measure a pipeline."""

from __future__ import annotations

import argparse
from typing import Any

from hami.cli import add_command, add_inputs, add_source, add_trace, count, positive, real, seconds, whole

from hami_tools.arguments import percentage, positives, rates

MIN_ROUNDS = 2  # an interval needs two
SCENARIOS = ("single-stream", "multi-stream", "server", "offline")


def add_benchmark_commands(commands: Any) -> None:
    """Add `bench`, `shadow` and `tune`."""
    bench = add_command(
        commands,
        "bench",
        "hami_tools.bench.command:bench",
        "measure throughput and latency of a pipeline",
        examples=[
            "hami bench pages.toml --input images/ --clients 1,8,64 --seconds 5 --slo 50ms --output result.json",
            "hami bench pages.toml --input images/ --compare faster.toml --clients 8",
            "hami bench pages.toml --input images/ --scenario server --slo 50ms --html result.html",
            "hami bench ocr --input pages/ --trace run.pftrace --plot loads.png --html result.html",
        ],
    )
    add_source(bench)
    add_inputs(bench)
    _add_loads(bench)
    _add_result(bench)
    add_trace(bench)

    shadow = add_command(
        commands,
        "shadow",
        "hami_tools.shadow.command:shadow",
        "run the same inputs through two pipelines, and compare their answers",
        examples=["hami shadow pages.toml candidate.toml --input images/ --folder worst/"],
    )
    add_source(shadow)
    shadow.add_argument("other", metavar="OTHER", help="the pipeline that is compared with SOURCE")
    add_inputs(shadow)
    shadow.add_argument(
        "--rtol", type=real(), metavar="X", help="relative tolerance of numbers; default: by their type"
    )
    shadow.add_argument(
        "--atol", type=real(), metavar="X", help="absolute tolerance of numbers; default: a tenth of the relative one"
    )
    shadow.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="TIME", help="time limit of each request; default: 60s"
    )
    shadow.add_argument("--folder", metavar="DIR", help="keep the inputs whose answers differ most in this folder")
    shadow.add_argument("--keep", type=count, default=10, metavar="N", help="how many are kept; default: 10")

    tune = add_command(
        commands,
        "tune",
        "hami_tools.tune.command:tune",
        "search settings with which a pipeline completes more requests",
        examples=["hami tune pages.toml --input images/ --slo 50ms --output tuned.toml"],
    )
    add_source(tune)
    add_inputs(tune)
    tune.add_argument(
        "--slo", type=seconds, metavar="TIME", help="count only requests that take at most TIME, such as 20ms"
    )
    tune.add_argument(
        "--clients", type=positive, default=16, metavar="N", help="callers with one request at a time each; default: 16"
    )
    tune.add_argument("--time", type=seconds, default=50.0, metavar="TIME", help="time of the search; default: 50s")
    tune.add_argument("--output", metavar="FILE", help="write the settings to this TOML file, which extends SOURCE")


def _add_loads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--clients",
        type=positives,
        default=[],
        metavar="N,…",
        help="closed loop: callers with one request at a time each; default: 1,4,16",
    )
    parser.add_argument(
        "--rate", type=rates, default=[], metavar="R,…", help="open loop: requests per second, with Poisson arrivals"
    )
    parser.add_argument("--arrivals", metavar="FILE", help="open loop: moments in seconds, one in each line of FILE")
    parser.add_argument(
        "--seconds", type=seconds, default=2.0, metavar="S", help="time of each measurement; default: 2"
    )
    parser.add_argument(
        "--stable",
        type=percentage,
        metavar="PERCENT",
        help="repeat each measurement until the last three differ by at most PERCENT, at most 10 times",
    )
    parser.add_argument(
        "--scenario",
        action="append",
        choices=SCENARIOS,
        default=[],
        help="instead of loads: a scenario of MLPerf LoadGen; repeatable",
    )
    parser.add_argument(
        "--compare", metavar="OTHER", help="measure SOURCE and OTHER alternately, and compare their results"
    )
    parser.add_argument(
        "--rounds",
        type=whole(MIN_ROUNDS),
        default=10,
        metavar="N",
        help="measurements of each with --compare; default: 10",
    )
    parser.add_argument(
        "--no-ceiling", action="store_true", help="do not measure the backends alone, and print no losses"
    )
    parser.add_argument("--slo", type=seconds, metavar="TIME", help="count the requests within TIME, such as 20ms")


def _add_result(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", metavar="FILE", help="write the result to this file, as JSON")
    parser.add_argument(
        "--html", metavar="FILE", help="write the result to this file, as a web page that loads nothing"
    )
    parser.add_argument(
        "--plot", metavar="FILE", help="plot the loads to this file, such as out.png; needs hami-tools[plot]"
    )
    parser.add_argument(
        "--against", metavar="FILE", help="compare with the result in FILE; the exit status is 1 if a load is worse"
    )
    parser.add_argument(
        "--tolerance",
        type=percentage,
        default=0.1,
        metavar="PERCENT",
        help="by how much a figure may be worse than in --against; default: 10%%",
    )
