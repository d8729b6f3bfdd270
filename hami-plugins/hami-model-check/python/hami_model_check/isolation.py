"""load_in_child: loads a model in a child process first, because a damaged model can end the process that loads it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import hami

# The child finds modules where this process finds them.
_CHILD = "import json, sys; given = json.load(sys.stdin); sys.path[:] = given['path']; "
_CHILD += "from hami_model_check._child import main; main(given)"
LOADED = "loaded"  # what the child answers then; an engine may end the process with status 0 before
_MAX_OUTPUT = 2000  # characters of what the child wrote to stderr that a message repeats

_loaded: set[str] = set()  # what a child of this process, or of its parent before a fork, has loaded


def load_in_child(
    backend: str,
    parameters: Mapping[str, Any],
    *,
    version_of_files: object,
    init_event: hami.Event | None = None,
    libraries: Sequence[str] = (),
) -> None:
    """Build a pipe of one backend in a child process, unless a child has done so with equal arguments before.

        load_in_child("hami-onnx::OnnxTensor", {"model": "detector.onnx"}, version_of_files=stamps)

    Args:
        backend: name of the backend, with its distribution.
        parameters: its parameters. None leaves the default.
        version_of_files: differs after a file of the model was replaced.
        init_event: `options["init_event"]` of `init`. If the init of the node ends, by its timeout or by Ctrl-C, the
            child is killed.
        libraries: files with native code that the child may load, as hami.native.allow_library does.

    Raises:
        hami.ConfigError: the child was ended by a signal, or ended without loading the model.
        hami.Error: the error that the child raised.
    """
    config = {key: os.fspath(v) if isinstance(v, os.PathLike) else v for key, v in parameters.items() if v is not None}
    config["backend"] = backend
    name = backend.rpartition("::")[2]
    key = json.dumps([config, repr(version_of_files)], sort_keys=True)
    if key in _loaded:
        return
    if not sys.executable or getattr(sys, "frozen", False):  # a frozen program would start itself
        raise hami.ConfigError(
            f"{name}: isolate_load = true needs a Python interpreter, and sys.executable of this process names none"
        )
    given = {"path": sys.path, "config": config, "libraries": list(libraries), "parent": os.getpid()}
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="backslashreplace",
    ) as child:
        if init_event is not None:
            init_event.add_done_callback(lambda _: child.kill())
        try:
            answer, output = child.communicate(json.dumps(given))
        except BaseException:  # Ctrl-C
            child.kill()
            raise
    _check(name, child.returncode, answer, output)
    _loaded.add(key)


def _check(name: str, status: int, answer: str, output: str) -> None:
    if status == 0 and answer == LOADED:
        return
    detail = output.strip()[-_MAX_OUTPUT:]
    detail = f"\n{detail}" if detail else ""
    if status < 0:
        number = -status
        try:
            text = f"{signal.Signals(number).name} ({signal.strsignal(number)})"
        except ValueError:
            text = f"signal {number}"
        raise hami.ConfigError(
            f"{name}: the child process that loaded the model first (isolate_load) was ended by {text}; the model is "
            f"damaged or malicious, or the engine cannot load it{detail}"
        )
    try:
        kind, text = json.loads(answer)
    except (TypeError, ValueError):
        raise hami.ConfigError(
            f"{name}: the child process that loads the model first (isolate_load) ended with status {status}{detail}"
        ) from None
    # The child has run a model that may be malicious: what it answers is data.
    error = getattr(hami, str(kind), None)
    known = error if isinstance(error, type) and issubclass(error, hami.Error) else hami.ConfigError
    raise known(str(text))
