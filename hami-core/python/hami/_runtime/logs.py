"""Turns messages of the core, of native plugins and of the watchdog into records of `logging`."""

from __future__ import annotations

import logging
import os
import sys

from hami import _core
from hami._errors import ConfigError


def emit(source: str, message: str, level: int) -> None:
    """Log a message of a node to the logger "hami.node.<name>", one of the core itself (source "hami") to "hami.core".

    Without a handler of the program, the message goes to standard error with its source, at any level.
    """
    logger = logging.getLogger("hami.core" if source == "hami" else f"hami.node.{source}")
    if logger.hasHandlers():
        logger.log(level, "%s", message)
    elif sys.stderr is not None:
        print(f"hami {source}: {message}", file=sys.stderr, flush=True)


def start_watchdog() -> None:
    """Start the watchdog with the least time that `HAMI_WATCHDOG` gives, unless it runs.

    Raises:
        ConfigError: It is not a duration above zero, HAMI_TOP=0 turns off what the watchdog reads, or its package is
            not in use.
    """
    from hami._plugins.manager import installed
    from hami._text import printable

    text = printable(os.environ["HAMI_WATCHDOG"])
    least_s = _core.read_duration(text)
    if not least_s or least_s <= 0:
        raise ConfigError(f'HAMI_WATCHDOG takes a duration above zero such as "10s", got "{text}"')
    if os.environ.get("HAMI_TOP") == "0":
        raise ConfigError("HAMI_WATCHDOG reads the status of pipes, which HAMI_TOP=0 turns off; remove one of both")
    start = installed.hook_of_tools("hami_watchdog", "HAMI_WATCHDOG")
    start(least_s=least_s, log=lambda report: emit("hami", report, logging.WARNING))
