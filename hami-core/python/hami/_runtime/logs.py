"""Turns log messages of the core and of native plugins into records of `logging`."""

from __future__ import annotations

import logging
import sys


def emit(source: str, message: str, level: int) -> None:
    """Log a message of a node to the logger "hami.node.<name>", one of the core itself (source "hami") to "hami.core".

    Without a handler of the program, the message goes to standard error with its source, at any level.
    """
    logger = logging.getLogger("hami.core" if source == "hami" else f"hami.node.{source}")
    if logger.hasHandlers():
        logger.log(level, "%s", message)
    elif sys.stderr is not None:
        print(f"hami {source}: {message}", file=sys.stderr, flush=True)
