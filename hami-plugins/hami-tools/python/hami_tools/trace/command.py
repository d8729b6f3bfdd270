"""The command `hami trace`: converts a timeline for other tools."""

from __future__ import annotations

import argparse
import sys

from hami import ConfigError
from hami.cli import json_of

from hami_tools.trace.convert import write_chrome, write_tensorboard
from hami_tools.trace.file import read_with_children
from hami_tools.trace.profile import read_profile


def trace(arguments: argparse.Namespace) -> int:
    """Convert a trace, with those of its child processes; with --json, print what was written."""
    if arguments.chrome is None and arguments.tensorboard is None:
        raise ConfigError("hami trace convert needs --chrome OUT or --tensorboard DIR")
    found, problems = read_with_children(arguments.file)
    for problem in problems:
        print(f"left out: {problem}", file=sys.stderr)
    operators = [event for profile in arguments.profile for event in read_profile(profile)]
    if arguments.chrome is not None:
        write_chrome(found, arguments.chrome, operators)
    if arguments.tensorboard is not None:
        write_tensorboard(found, arguments.tensorboard, operators)
    if arguments.json:
        print(json_of({"chrome": arguments.chrome, "tensorboard": arguments.tensorboard}))
    return 0
