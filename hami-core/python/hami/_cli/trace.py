"""The command `hami trace`, and the option --trace of other commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hami._cli.show import json_of
from hami._errors import ConfigError
from hami._runtime.pipe import Pipe


@contextmanager
def traced(pipe: Pipe, arguments: argparse.Namespace) -> Iterator[None]:
    """Record the trace that --trace names, if it is given, and say where it is."""
    if arguments.trace is None:
        if arguments.trace_last is not None or arguments.trace_slow is not None:
            raise ConfigError("--trace-last and --trace-slow need --trace FILE")
        yield
        return
    with pipe.trace(arguments.trace, last=arguments.trace_last, slow=arguments.trace_slow) as trace:
        yield
    if trace.lost:
        print(f"trace: {trace.lost} events were lost, {trace.events} are recorded", file=sys.stderr)
    if arguments.trace_last is not None and not trace.written:
        print("trace: no request was slow, and the file is empty", file=sys.stderr)


def trace(arguments: argparse.Namespace) -> int:
    """Convert a trace; with --json, print what was written."""
    from hami.observe.trace_convert import write_chrome, write_tensorboard
    from hami.observe.trace_file import read_trace

    if arguments.chrome is None and arguments.tensorboard is None:
        raise ConfigError("hami trace convert needs --chrome OUT or --tensorboard DIR")
    found = read_trace(arguments.file)
    if arguments.chrome is not None:
        write_chrome(found, arguments.chrome)
    if arguments.tensorboard is not None:
        write_tensorboard(found, arguments.tensorboard)
    if arguments.json:
        print(json_of({"chrome": arguments.chrome, "tensorboard": arguments.tensorboard}))
    return 0
