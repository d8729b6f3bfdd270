"""Opens ONNX models: one onnxruntime session per model and setting in a process, shared by all that use it.

Threads. A session has a pool of `threads` threads (those of its callers count), by default as many as the process may
use. onnxruntime's Run may be called from any number of threads at once, and callers then work with what the pool has
free. Ten instances of a node are therefore ten callers of one session: one pool and one copy of the weights.
Waiting threads sleep instead of spinning, so the pools of several models do not take the cores from each other.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence

import hami
import onnxruntime

from hami_onnx._files import Stamp, path_and_stamps
from hami_onnx._providers import check_used, full_name, parse_options
from hami_onnx._threads import usable_cores

# How onnxruntime says that the bytes are no model; the words changed between its versions.
_SIGNS_OF_NO_MODEL = ("Protobuf parsing failed", "No graph was found", "does not have a graph")

# onnxruntime starts all threads of a session at once: a hundred thousand keep it busy for minutes, a million end the
# process. No machine has that many cores.
_MOST_THREADS = 4096

_lock = threading.Lock()
_open: weakref.WeakValueDictionary[tuple[object, ...], onnxruntime.InferenceSession] = weakref.WeakValueDictionary()


def _begin_in_a_fork() -> None:
    """Forget the parent's sessions: their threads are not in this process, nor is who may have held the lock."""
    global _lock, _open
    _lock, _open = threading.Lock(), weakref.WeakValueDictionary()


os.register_at_fork(after_in_child=_begin_in_a_fork)


def open_session(
    model: str | os.PathLike[str],
    *,
    provider: str = "cpu",
    provider_options: Sequence[str] = (),
    threads: int = 0,
    owner: str = "open_session",
) -> onnxruntime.InferenceSession:
    """Return the session of a model file, the one in use if there is one; it is freed with its last user.

    `provider` is a short name (cpu, cuda, openvino, …) or onnxruntime's own; `provider_options` are "key=value";
    `threads` = 0 is all that the process may use. `owner` names the backend in errors, which are hami.ConfigError.
    """
    path = _existing_file(model, owner)
    if not 0 <= threads <= _MOST_THREADS:
        raise hami.ConfigError(
            f'{owner}: "threads" is 0 (all cores this process may use) to {_MOST_THREADS}, got {threads}'
        )
    name = full_name(provider, owner)
    options = parse_options(provider_options, owner)
    path, stamps = _readable(path, owner)
    key = (stamps, name, tuple(sorted(options.items())), threads or usable_cores())
    with _lock:
        session = _open.get(key)
        if session is None:
            session = _open[key] = _start(path, name, options, threads or usable_cores(), owner)
    return session


def _existing_file(model: str | os.PathLike[str], owner: str) -> str:
    if "\0" in os.fspath(model):
        raise hami.ConfigError(f'{owner}: "model" is the path of an ONNX file, {os.fspath(model)!r} holds a NUL')
    path = os.path.join(os.getcwd(), os.fspath(model))
    if os.path.isdir(path):
        raise hami.ConfigError(f'{owner}: "model" is the path of an ONNX file, "{model}" is a folder')
    if not os.path.isfile(path):
        raise hami.ConfigError(f'{owner}: there is no model file "{model}" (looked for {path})')
    return path


def _readable(path: str, owner: str) -> tuple[str, tuple[Stamp, ...]]:
    try:
        return path_and_stamps(path)
    except OSError as error:
        raise hami.ConfigError(f'{owner}: "{path}" cannot be read: {error.strerror}') from error


def _start(path: str, provider: str, options: dict[str, str], threads: int, owner: str) -> onnxruntime.InferenceSession:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    settings.add_session_config_entry("session.inter_op.allow_spinning", "0")
    settings.log_severity_level = 3  # errors; warnings about a model's graph are not for its users
    try:
        session = onnxruntime.InferenceSession(path, settings, providers=[(provider, options)], enable_fallback=0)
        for node in (*session.get_inputs(), *session.get_outputs()):
            _ = node.name, node.shape  # a model may call them what is no text: it raises here, where the file is known
    except Exception as error:  # onnxruntime's exceptions have no common base but Exception
        raise hami.ConfigError(_unreadable(path, error, owner)) from error
    session.disable_fallback()
    check_used(session, provider, path, owner)
    return session


def _unreadable(path: str, error: Exception, owner: str) -> str:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    reason = reason.rpartition(f"{path} failed:")[2] or reason
    size = os.path.getsize(path)
    if not size:
        reason = "the file is empty"
    if not size or any(sign in reason for sign in _SIGNS_OF_NO_MODEL):
        return f'{owner}: "{path}" ({size} bytes) is truncated or is not an ONNX model: {reason}'
    return f'{owner}: onnxruntime {onnxruntime.__version__} cannot load "{path}" ({size} bytes): {reason}'
