"""What commands that measure a pipeline share: its pipes, and the inputs in memory."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hami
from hami import ConfigError, Pipe, RequestError
from hami.cli import Input, describe_exception, inputs_of, printable, report, require_node
from hami.config import LoadedConfig, read_source

Request = dict[str, Any]

MAX_TRIED = 100  # inputs
TRY_TIMEOUT = 60.0  # seconds for each of them; the first run of an engine may compile
MAX_SHOWN = 3  # inputs that are named


def check_outputs(arguments: argparse.Namespace, *options: str) -> None:
    """Raise ConfigError before anything is measured if a file that an option names cannot be written."""
    for option in options:
        path = getattr(arguments, option)
        if path and (not os.access(Path(path).parent, os.W_OK) or Path(path).is_dir()):
            problem = f"--{option} {printable(path)}: cannot be written"
            raise ConfigError(f"{problem}; give a file in a folder that exists and can be written")


def config_of(source: str, arguments: argparse.Namespace, settings: Sequence[str] = ()) -> LoadedConfig:
    """Return the configuration of a source, with --import, --set and further settings."""
    config, problems = read_source(source, [*arguments.set, *settings], arguments.imports)
    if problems:
        raise ConfigError.of(problems)
    require_node(config, arguments)
    return config


def built(source: str, arguments: argparse.Namespace, settings: Sequence[str] = ()) -> Pipe:
    """Return the pipe of a source, with --import, --set and further settings."""
    return hami.pipe(config_of(source, arguments, settings))


def check_some_input_runs(pipe: Pipe, inputs: Sequence[tuple[Input, Request]]) -> None:
    """Run inputs one by one until one succeeds: the figures of requests that all fail mean nothing.

    Raises:
        RequestError: Every input that was tried fails; it says why.
    """
    failures = []
    for entry, request in inputs[:MAX_TRIED]:
        try:
            pipe(dict(request), timeout=TRY_TIMEOUT)
        except Exception as error:
            failures.append((entry.label, error))
        else:
            return
    reasons = dict.fromkeys(f"{label} fails: {describe_exception(error)}" for label, error in failures)
    raise RequestError(
        "nothing is measured, because every request fails:\n  " + "\n  ".join(list(reasons)[:MAX_SHOWN])
    ) from failures[0][1]


def readable_inputs(arguments: argparse.Namespace) -> tuple[list[tuple[Input, Request]], int]:
    """Return the inputs that can be read with their requests, and the number of the others, which are reported."""
    readable, unread = [], 0
    for entry in inputs_of(arguments):
        try:
            readable.append((entry, entry.request()))
        except RequestError as error:
            unread += 1
            report(error, entry.label)
    if not readable:
        raise ConfigError("no input can be read")
    return readable, unread
