"""open_session and open_native: open ONNX models, with one shared session per model and settings in a process.

open_session returns a session of the package onnxruntime; open_native one of the native library of hami-onnx.

Threads: a session has one pool of `threads` threads, by default one per core that this process may use; a calling
thread counts as one of them. Any number of threads may call a session at the same time, and all calls share its pool.
For example, ten instances of a node are ten callers of one session, with one pool and one copy of the weights. Idle
threads of a pool sleep and do not spin, so that the pools of several models do not take CPU time from each other.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import hami
from hami_model_check.isolation import load_in_child
from hami_model_check.onnx import OnnxFile, read_onnx

from hami_onnx._cores import usable_cores
from hami_onnx._model_files import FileStamp, find_model_files
from hami_onnx._native import NativeSession, NativeSettings
from hami_onnx._providers import CPU, Chosen, check_active_provider, choose_providers, libraries_in
from hami_onnx._runtime import find_library, version

if TYPE_CHECKING:
    import onnxruntime

    Session = TypeVar("Session", onnxruntime.InferenceSession, NativeSession)

# Parts of onnxruntime's messages, in different versions, for a file that is not a complete model.
_NOT_A_MODEL = ("Protobuf parsing failed", "No graph was found", "does not have a graph")

_NO_KERNEL = re.compile(r"implementation for (?P<operator>[\w.]+)\((?P<since>\d+)\) node with name '(?P<node>[^']*)'")
_NO_FALLBACK = "fallback to CPU EP has been explicitly disabled"
_USE_CPU = 'see `hami info` for the installed providers, or write provider = "cpu"'
_REFUSED_OWN_GRAPH = "output_dtype INT8 does not match y_zero_point type UINT8"  # src/session.cpp says why
_QDQ_PROPAGATION = "QDQPropagationTransformer"
_OPSET_WITH_KERNELS = 25  # newer opsets are accepted, but some of their operators have no kernel

# onnxruntime starts all threads of a session immediately: 100,000 take minutes and 1,000,000 crash the process.
_MAX_THREADS = 4096  # more than the cores of any machine

_lock = threading.Lock()
_sessions: weakref.WeakValueDictionary[tuple[object, ...], Any] = weakref.WeakValueDictionary()


def _reset_after_fork() -> None:
    """Forget the parent's sessions, whose threads do not exist in the child, and its lock, which may be held."""
    global _lock, _sessions
    _lock, _sessions = threading.Lock(), weakref.WeakValueDictionary()


os.register_at_fork(after_in_child=_reset_after_fork)


def open_session(
    model: str | os.PathLike[str],
    *,
    provider: str | Sequence[str] = "cpu",
    cpu_fallback: bool = True,
    provider_options: Sequence[str] = (),
    threads: int = 0,
    custom_operators: Sequence[str | os.PathLike[str]] = (),
    memory: str = "arena",
    limits: Mapping[str, int] | None = None,
    isolate_load: bool = False,
    init_event: hami.Event | None = None,
    backend: str = "open_session",
    meanwhile: Callable[[], object] | None = None,
) -> onnxruntime.InferenceSession:
    """Open an ONNX model, or return its session if the model is already open with the same settings.

        session = open_session("detector.onnx", provider="cuda", provider_options=["device_id=1"])

    The session is freed when its last user drops it.

    Args:
        model: path of the ONNX file.
        provider: short name (cpu, cuda, openvino, …) or full name of an execution provider, or several, the preferred
            one first.
        cpu_fallback: whether the CPU runs operators that the provider does not take.
        provider_options: options of the provider, or of the first one, each written as key=value.
        threads: size of the session's thread pool; 0 means the number of cores that this process may use.
        custom_operators: libraries with operators of the user, which must be allowed files.
        memory: what the session does with memory that its runs have used: arena, shrink or none.
        limits: arguments of hami_model_check.onnx.read_onnx, such as {"max_nodes": 1000}; None: its defaults.
        isolate_load: load the model in a child process first; for the backends OnnxTensor and LoadOnnx.
        init_event: `options["init_event"]` of the backend; if it completes, the child process is killed.
        backend: name of the calling backend, for error messages.
        meanwhile: runs in a thread while onnxruntime creates the session without the GIL; its errors are dropped.

    Raises:
        hami.ConfigError: the model cannot be read or loaded, exceeds a limit, or ended the child process; or the
            provider cannot be used, or one of its options names a library that is not allowed.
    """
    chosen = choose_providers(provider, provider_options, backend)
    opening = _prepare(model, chosen, cpu_fallback, threads, custom_operators, memory, limits or {}, backend)
    return _open(
        ("python",), opening, lambda: _create_session(opening, backend), isolate_load, init_event, backend, meanwhile
    )


def open_native(
    model: str | os.PathLike[str],
    *,
    library: str | os.PathLike[str] | None = None,
    provider: str | Sequence[str] = "cpu",
    cpu_fallback: bool = True,
    provider_options: Sequence[str] = (),
    threads: int = 0,
    busy_threads: int = 0,
    custom_operators: Sequence[str | os.PathLike[str]] = (),
    memory: str = "arena",
    freed: Sequence[int] = (),
    limits: Mapping[str, int] | None = None,
    isolate_load: bool = False,
    init_event: hami.Event | None = None,
    backend: str = "open_native",
    meanwhile: Callable[[], object] | None = None,
) -> NativeSession | None:
    """Open a model in the native library, or return its session; None if the provider is not the CPU.

    Args:
        library: ONNX Runtime's library, which must be an allowed file; None: that of the package onnxruntime.
        busy_threads: threads of a run while more runs last than half of `threads`; 0, or not fewer: always `threads`.
        freed: offsets of find_fixed_ones, where the session has a free axis.
        model, provider, …: as for `open_session`.

    Raises:
        hami.ConfigError: as for `open_session`.
        hami.PluginError: ONNX Runtime's library is missing or too old.
    """
    if not 0 <= busy_threads <= _MAX_THREADS:
        raise hami.ConfigError(f'{backend}: "busy_threads" must be from 0 to {_MAX_THREADS}, got {busy_threads}')
    chosen = choose_providers(provider, provider_options, backend)
    opening = _prepare(model, chosen, cpu_fallback, threads, custom_operators, memory, limits or {}, backend)
    if not chosen.is_native:
        return None
    busy_threads = busy_threads if busy_threads < opening.threads else 0  # the same session, which is opened once
    path = os.fspath(library) if library else str(find_library())
    settings = NativeSettings(
        path,
        opening.path,
        opening.threads,
        busy_threads,
        opening.libraries,
        list(chosen.plugins),
        cpu_fallback,
        memory,
        [str(at) for at in freed],
        repr(opening.stamps),
    )

    def create() -> NativeSession:
        try:
            return NativeSession(settings)
        except hami.ConfigError as error:
            reason = str(error).splitlines()[0]
            if reason.startswith("the execution provider "):
                raise hami.ConfigError(f"{backend}: {reason}; {_USE_CPU}") from error
            if reason.startswith("OnnxTensor: "):  # about a library of operators
                raise hami.ConfigError(f"{backend}: {reason.removeprefix('OnnxTensor: ')}") from error
            raise hami.ConfigError(_load_error(opening.path, reason, backend)) from error
        except ValueError as error:  # from the core, which takes no such text
            reason = f"a name in it is not valid UTF-8: {str(error).splitlines()[0]}"
            raise hami.ConfigError(_load_error(opening.path, reason, backend)) from error
        except hami.PluginError as error:
            reason = str(error).splitlines()[0]
            if not reason.startswith("the execution provider "):
                raise
            raise hami.PluginError(f"{backend}: {reason}; {_USE_CPU}") from error

    kind = ("native", path, f"{busy_threads}", *settings.freed)
    return _open(kind, opening, create, isolate_load, init_event, backend, meanwhile)


class _Opening(NamedTuple):
    """What opens a model, after all checks."""

    path: str
    stamps: tuple[FileStamp, ...]
    chosen: Chosen
    cpu_fallback: bool
    threads: int
    libraries: list[str]  # of operators
    memory: str
    parameters: dict[str, object]  # of a backend that opens the model in a child process


def _prepare(
    model: str | os.PathLike[str],
    chosen: Chosen,
    cpu_fallback: bool,
    threads: int,
    custom_operators: Sequence[str | os.PathLike[str]],
    memory: str,
    limits: Mapping[str, int],
    backend: str,
) -> _Opening:
    path = _existing_file(model, backend)
    if not 0 <= threads <= _MAX_THREADS:
        raise hami.ConfigError(
            f'{backend}: "threads" must be from 0 (all cores that this process may use) to {_MAX_THREADS}, '
            f"got {threads}"
        )
    if chosen.names == (CPU,) and not cpu_fallback:
        raise hami.ConfigError(f"{backend}: cpu_fallback = false needs an execution provider other than the CPU")
    libraries = [_allowed_library(library, backend) for library in custom_operators]
    path, stamps = find_files(path, limits, backend)
    threads = threads or usable_cores()
    parameters: dict[str, object] = {"model": path, **chosen.parameters}
    parameters |= {"threads": threads, "memory": memory, **limits}
    if not cpu_fallback:
        parameters["cpu_fallback"] = False
    if libraries:
        parameters["custom_operators"] = libraries
    return _Opening(path, stamps, chosen, cpu_fallback, threads, libraries, memory, parameters)


def _open(
    kind: tuple[str, ...],
    opening: _Opening,
    create: Callable[[], Session],
    isolate_load: bool,
    init_event: hami.Event | None,
    backend: str,
    meanwhile: Callable[[], object] | None,
) -> Session:
    """Return the open session of this kind, or create it."""
    operators = tuple(opening.libraries)
    key = (*kind, opening.stamps, *opening.chosen.key, opening.cpu_fallback, opening.threads, operators, opening.memory)
    with _lock:
        session: Session | None = _sessions.get(key)
        if session is None:
            if isolate_load:
                load_in_child(
                    f"hami-onnx::{backend}",
                    opening.parameters,
                    version_of_files=opening.stamps,
                    init_event=init_event,
                    libraries=[*opening.libraries, *libraries_in(opening.chosen.options.values())],
                )
            with _beside(meanwhile):
                session = _sessions[key] = create()
    return session


@contextlib.contextmanager
def _beside(work: Callable[[], object] | None) -> Iterator[None]:
    """Run `work` in a thread beside the body."""

    def run() -> None:
        assert work is not None
        with contextlib.suppress(Exception):
            work()

    if work is None:
        yield
        return
    thread = threading.Thread(target=run, name="hami-onnx beside")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _allowed_library(library: str | os.PathLike[str], backend: str) -> str:
    path = os.path.realpath(os.fspath(library))
    hami.native.check_library(path, f'"custom_operators" of {backend}')
    return path


def _existing_file(model: str | os.PathLike[str], backend: str) -> str:
    """Return the absolute path of a model file."""
    if "\0" in os.fspath(model):
        raise hami.ConfigError(
            f'{backend}: "model" must be the path of an ONNX file, but {os.fspath(model)!r} contains a NUL character'
        )
    path = os.path.join(os.getcwd(), os.fspath(model))
    if os.path.isdir(path):
        raise hami.ConfigError(f'{backend}: "model" must be the path of an ONNX file, but "{model}" is a directory')
    if not os.path.isfile(path):
        raise hami.ConfigError(f'{backend}: model file "{model}" does not exist (looked for {path})')
    return path


def find_files(path: str, limits: Mapping[str, int], backend: str) -> tuple[str, tuple[FileStamp, ...]]:
    """Return the path to open and the stamps of all files of a model."""
    try:
        return find_model_files(path, read_model(path, limits, backend).external_files)
    except OSError as error:
        raise hami.ConfigError(f'{backend}: "{path}" cannot be read: {error.strerror}') from error


def read_model(path: str, limits: Mapping[str, int], backend: str) -> OnnxFile:
    """Return the structure of a model. ONNX Runtime takes inputs with an axis of length 0."""
    return read_onnx(path, backend=backend, empty_inputs=True, **limits)


def _create_session(opening: _Opening, backend: str) -> onnxruntime.InferenceSession:
    import onnxruntime

    path, names = opening.path, opening.chosen.names
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = opening.threads
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    settings.add_session_config_entry("session.inter_op.allow_spinning", "0")
    # Small blocks of work: a run does not wait for a thread of the pool that is busy with another run.
    settings.add_session_config_entry("session.dynamic_block_base", "4")
    settings.log_severity_level = 3  # errors only; users of a model cannot act on warnings about its graph
    if not opening.cpu_fallback:
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if opening.memory == "none":
        settings.enable_cpu_mem_arena = settings.enable_mem_pattern = False
    for library in opening.libraries:
        try:
            settings.register_custom_ops_library(library)
        except Exception as error:
            raise hami.ConfigError(
                f'{backend}: "custom_operators" names "{library}", which is not a library of operators for onnxruntime '
                f"{onnxruntime.__version__}: {str(error).strip()}"
            ) from error
    try:
        providers = [(names[0], opening.chosen.options), *((name, {}) for name in names[1:])]
        session = inference_session(path, settings, providers)
        for node in (*session.get_inputs(), *session.get_outputs()):
            _ = node.name, node.shape  # raises here, where the file is known, if a name is not valid UTF-8
    except Exception as error:  # onnxruntime's exceptions have no common base class but Exception
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise hami.ConfigError(_load_error(path, reason, backend)) from error
    session.disable_fallback()
    check_active_provider(session, names[0], path, backend)
    return session


def inference_session(path: str, settings: Any, providers: Sequence[Any]) -> Any:
    """Return a session of ONNX Runtime; `settings` are a SessionOptions, and may get one more entry."""
    import onnxruntime

    for last in (False, True):
        try:
            return onnxruntime.InferenceSession(path, settings, providers=providers, enable_fallback=0)
        except Exception as error:
            if last or _REFUSED_OWN_GRAPH not in str(error):
                raise
            settings.add_session_config_entry("optimization.disable_specified_optimizers", _QDQ_PROPAGATION)


def _load_error(path: str, reason: str, backend: str) -> str:
    reason = reason.rpartition(f"{path} failed:")[2] or reason
    size = os.path.getsize(path)
    if not size:
        reason = "the file is empty"
    if not size or any(part in reason for part in _NOT_A_MODEL):
        return f'{backend}: "{path}" ({size} bytes) is truncated or is not an ONNX model: {reason}'
    if _NO_FALLBACK in reason:
        return (
            f'{backend}: an operator of "{path}" is not taken by the execution provider, and cpu_fallback = false; '
            "remove cpu_fallback to let the CPU run it: pipe.remarks() then names such operators"
        )
    if missing := _NO_KERNEL.search(reason):
        return f'{backend}: "{path}": {_no_kernel(missing["operator"], int(missing["since"]), missing["node"])}'
    return f'{backend}: onnxruntime {version()} cannot load "{path}" ({size} bytes): {reason}'


def _no_kernel(operator: str, since: int, node: str) -> str:
    """Return what to do about an operator that the installed onnxruntime knows but cannot compute."""
    where = f'{operator} (node "{node}")' if node else operator
    text = f"onnxruntime {version()} has no kernel for {where}, opset {since}"
    if since > _OPSET_WITH_KERNELS:
        return (
            f"{text}; convert the model to opset {_OPSET_WITH_KERNELS}, for example with "
            f"onnx.version_converter.convert_version(model, {_OPSET_WITH_KERNELS}), or export it with that opset"
        )
    return f"{text}, with the types of this model; change them, for example to float32 with Cast before and after it"
