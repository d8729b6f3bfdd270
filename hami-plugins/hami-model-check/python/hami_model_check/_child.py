"""The child process of load_in_child: builds a pipe and ends, without freeing anything."""

from __future__ import annotations

import ctypes
import json
import os
import signal
from typing import Any, NoReturn

import hami

from hami_model_check.isolation import LOADED

_PR_SET_PDEATHSIG = 1  # of prctl(2): the signal that the kernel sends when the parent ends
_FAILED = 1


def main(given: dict[str, Any]) -> NoReturn:
    """Build the pipe of `config`; write LOADED to the standard output, or the type and text of its error as JSON."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != given["parent"]:  # it has ended already
        os._exit(_FAILED)
    answer = os.dup(1)
    os.dup2(2, 1)  # an engine may print to its standard output
    for library in given["libraries"]:
        hami.native.allow_library(library)
    try:
        pipe = hami.pipe(given["config"])
    except Exception as error:
        os.write(answer, json.dumps([type(error).__name__, str(error)]).encode())
        os._exit(_FAILED)
    os.write(answer, LOADED.encode())
    os._exit(0 if pipe else _FAILED)
