"""Reads the profile of an engine: how long each operator took, in the trace event format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hami import ConfigError
from hami.cli import printable

from hami_tools.trace.file import content_of

NS_PER_US = 1e3
FENCES = ("_fence_before", "_fence_after")  # around each operator, without a duration, in onnxruntime 1.20


def read_profile(path: str | Path) -> list[dict[str, Any]]:
    """Return the events of a profile on the clock of timelines, in microseconds.

    The file is a list of events whose times count from the start of the profile. The event `hami_clock` has this start
    on the monotonic clock.

    Raises:
        ConfigError: The path is not that of a regular file, or the file is not a profile or has no clock.
        OSError: The file cannot be read.
    """
    shown = printable(str(path))
    try:
        events = json.loads(content_of(path))
        clocks = [event["args"]["monotonic_ns"] for event in events if event["name"] == "hami_clock"]
        moved = [
            {**event, "ts": event["ts"] + clocks[0] / NS_PER_US}
            for event in events
            if clocks and event["ph"] == "X" and not event["name"].endswith(FENCES)
        ]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ConfigError(
            f'"{shown}" is not a complete profile: {error!r}; it is written when the pipe with `profile` is closed'
        ) from None
    if not clocks:
        raise ConfigError(
            f'"{shown}" does not say when it began; give a file that the parameter `profile` of OnnxTensor has written'
        )
    return moved
