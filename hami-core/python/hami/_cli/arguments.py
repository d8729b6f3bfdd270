"""Arguments that several commands share: their declaration, and the types of their values."""

from __future__ import annotations

import argparse
import importlib
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "min": 60.0}


def add_command(
    commands: Any, name: str, place: str, text: str, *, examples: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """Add a command with the options --json and --traceback, and return its parser.

    Args:
        commands: What `hami_commands` gets, or any object with the function `add_parser` of argparse.
        name: The name of the command.
        place: Its function, as "module:function". The module is imported when the command runs. The function takes the
            parsed arguments and returns the exit status.
        text: What the command does, in one line of the help.
        examples: Command lines for the end of its help.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--traceback", action="store_true", help="print the traceback of an error")
    parser.set_defaults(run=_lazy(place))
    if examples:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = "\n".join(["example:", *(f"  {line}" for line in examples)])
    return parser


def _lazy(place: str) -> Callable[[argparse.Namespace], int]:
    """Return a function that imports "module:function" and calls it."""

    def run(parsed: argparse.Namespace) -> int:
        module, _, function = place.partition(":")
        command: Callable[[argparse.Namespace], int] = getattr(importlib.import_module(module), function)
        return command(parsed)

    return run


def add_source(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add SOURCE, --set and --import."""
    parser.add_argument(
        "source",
        nargs=None if required else "?",
        metavar="SOURCE",
        help="TOML file, model file, packaged pipeline, or expression",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a key of the only node, a key of one node (NODE.KEY=VALUE), or a key for all nodes; repeatable",
    )
    parser.add_argument(
        "--import",
        action="append",
        default=[],
        metavar="FILE",
        dest="imports",
        help="import a Python file or module first; repeatable",
    )


def add_values(parser: argparse.ArgumentParser) -> None:
    """Add --text, --data and --node."""
    parser.add_argument(
        "--text", action="append", default=[], metavar="TEXT", help="use this text as the input; repeatable"
    )
    parser.add_argument(
        "--data", action="append", default=[], metavar="JSON", help="use this JSON value as the input; repeatable"
    )
    parser.add_argument(
        "--node", metavar="NAME", help="the node where the inputs start, in a graph with several first nodes"
    )


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add --input, --text, --data and --node."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        dest="inputs",
        metavar="PATH",
        help="file, folder of files, or - for standard input; repeatable",
    )
    add_values(parser)


def add_trace(parser: argparse.ArgumentParser) -> None:
    """Add --trace, --trace-last and --trace-slow."""
    parser.add_argument("--trace", metavar="FILE", help="record a timeline into FILE, for ui.perfetto.dev")
    parser.add_argument(
        "--trace-last",
        type=seconds,
        metavar="TIME",
        help="write only the last TIME before a slow request, such as 10s, when there is one",
    )
    parser.add_argument(
        "--trace-slow", type=seconds, metavar="TIME", help="with --trace-last: a request is slow from TIME on"
    )


def whole(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    """Return the type of whole numbers from `least` to `most`."""

    def value(text: str) -> int:
        digits = text.lstrip("0") or text[-1:]
        if not digits.isdecimal() or len(digits) > len(str(most)) or not least <= int(digits) <= most:
            raise argparse.ArgumentTypeError(f"expected a number from {least} to {most}, got {text[:40]!r}")
        return int(digits)

    return value


def real(least: float = 0.0, most: float = 1e9) -> Callable[[str], float]:
    """Return the type of numbers from `least` to `most`."""

    def value(text: str) -> float:
        number = _number(text)
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"expected a number from {least:g} to {most:g}, got {text[:40]!r}")
        return number

    return value


count = whole(0)
positive = whole(1)


def seconds(text: str) -> float:
    """Return a time of more than 0 in seconds: `20ms`, `2s`, `1min`, or a bare number of seconds."""
    found = re.fullmatch(r"\s*([0-9.]+(?:e-?[0-9]+)?)\s*(us|ms|s|min|)\s*", text)
    value = _number(found[1]) * _SECONDS[found[2]] if found else math.nan
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"expected a time of more than 0, such as 20ms or 2s, got {text[:40]!r}")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
