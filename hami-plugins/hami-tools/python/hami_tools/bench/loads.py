"""The loads that the arguments of `hami bench` name."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from hami import ConfigError
from hami.cli import printable

from hami_tools.bench.load import Load

CLIENTS = (1, 4, 16)  # if no load is given


def loads_of(arguments: argparse.Namespace) -> list[Load]:
    """Return the closed loops, then the open ones."""
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
