"""What commands that measure a pipeline share: its pipes, and the inputs in memory."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hami
from hami import ConfigError, Pipe, RequestError
from hami.cli import Input, inputs_of, printable, report
from hami.config import LoadedConfig, read_source

Request = dict[str, Any]


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
    return config


def built(source: str, arguments: argparse.Namespace, settings: Sequence[str] = ()) -> Pipe:
    """Return the pipe of a source, with --import, --set and further settings."""
    return hami.pipe(config_of(source, arguments, settings))


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
