"""The option --trace of commands that run a pipeline."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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
