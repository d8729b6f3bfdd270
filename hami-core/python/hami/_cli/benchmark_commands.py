"""Declares the arguments of the commands that measure a pipeline."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from hami._cli.arguments import add_inputs, add_source, example, percentage, positives, rates, seconds

Add = Callable[[str, str, str], argparse.ArgumentParser]


def add_benchmark_commands(add: Add) -> None:
    """Add the commands with a function of name, place of the function, and help text."""
    bench = add("bench", "hami._cli.bench:bench", "measure throughput and latency of a pipeline")
    add_source(bench)
    add_inputs(bench)
    _add_loads(bench)
    _add_result(bench)
    example(bench, "hami bench pages.toml --input images/ --clients 1,8,64 --seconds 5 --slo 50ms")


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
        "--no-ceiling", action="store_true", help="do not measure the backends alone, and print no losses"
    )
    parser.add_argument("--slo", type=seconds, metavar="TIME", help="count the requests within TIME, such as 20ms")


def _add_result(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", metavar="FILE", help="write the result to this file, as JSON")
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
