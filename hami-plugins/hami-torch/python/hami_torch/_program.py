"""Load a program from a file or a factory; instances and pipes with the same settings share one per process.

Differences between torch versions are found by the presence of a function, never by the version number.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
import weakref
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import hami
from hami_model_check.joining import Joining

from hami_torch import _factories
from hami_torch._compiled import CompiledModule, is_compiled, reject_own_cuda_graphs
from hami_torch._device import synchronize
from hami_torch._rows import owned
from hami_torch._streams import current_stream
from hami_torch._tensor import map_tensors, tensors_of
from hami_torch._torch import torch, torch_untyped
from hami_torch._weights import load_weights


class Source(NamedTuple):
    """Where a program comes from and how it runs; equal sources share one program."""

    model: str  # path of the file; "" if a factory makes the program
    factory: str  # "package.module:name"; "" if the program comes from a file
    arguments: tuple[str, ...]  # of the factory, each key=value
    weights: str  # path of the state dict for the factory's module; "" for none
    device: torch.device
    dtype: torch.dtype | None  # None: as in the file or factory
    channels_last: bool


class InputSpec(NamedTuple):
    """What a program takes for one input. Axis 0 is the batch; -1 in the shape is any size."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


class Program:
    """A callable model.

    `call` is the model as loaded; `run` calls it in a way that is safe from several threads. `rows` is the number of
    rows if it is fixed, `max_rows` the limit: "auto" if there is none, None if it is unknown. `inputs` is what it
    takes, None if that is unknown; the last `keywords` of them are passed by name. `has_run`: a run has completed.
    `writes_input`: a run modified its input. Before the first completed run, and once it has modified its input, the
    program gets copies. `has_state`: runs change tensors that the module holds; None as long as that is unknown.
    """

    has_run = False
    writes_input = False
    has_state: bool | None = None

    def __init__(
        self,
        call: Callable[..., Any],
        rows: int | None = None,
        max_rows: int | Literal["auto"] | None = None,
        inputs: list[InputSpec] | None = None,
        keywords: int = 0,
    ) -> None:
        self.call = call
        self.inputs = inputs
        self.keywords = keywords
        self.compiles = is_compiled(call)
        self.run = CompiledModule(call) if self.compiles else call
        self.rows = rows
        self.max_rows = max_rows
        module: Any = call if isinstance(call, torch.nn.Module) else None
        held = () if module is None else (*module.parameters(), *module.buffers())
        self._held_addresses = {_storage_address(tensor) for tensor in held} - {None}  # memory the program keeps
        self.joinings: dict[str, Joining] = {}  # what a test found, by settings
        self.auto_graphs: dict[str, weakref.WeakSet[Any]] = {}  # of the instances that run it, by settings
        self._last_storages: list[Any] = []  # weak references to the memory of the last run's outputs
        self._module = module
        self._held: dict[str, tuple[torch.Tensor, int]] | None = None  # after the last run, with their versions
        self._turn = threading.Lock()  # held by `alone`; guards what follows
        self._last_stream: torch.cuda.Stream | None = None

    @contextmanager
    def alone(self, device: torch.device) -> Iterator[None]:
        """Let the runs of all instances follow one another, also on the device, unless the program has no state."""
        if self.has_state is False:
            yield
            return
        with self._turn:
            if device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
                stream = current_stream(device)
                if self._last_stream is not None and self._last_stream is not stream:
                    stream.wait_stream(self._last_stream)
                self._last_stream = stream
            yield
            if self.has_state is None:
                self._compare_state()

    def _compare_state(self) -> None:
        """Find out whether the last run changed tensors of the module.

        A run may make one when it needs it, or a larger one: only a change of one that exists, or another of its shape
        in its place, is state.
        """
        before, self._held = self._held, dict(_held_by(self._module))
        if before is None:
            return
        pairs = [(*before[name], *now) for name, now in self._held.items() if name in before]
        if any(
            version != old_version if tensor is old else tensor.shape == old.shape
            for old, old_version, tensor, version in pairs
        ):
            self.has_state = True
        elif len(pairs) == len(self._held) and all(tensor is old for old, _, tensor, _ in pairs):
            self.has_state = False
        if self.has_state is not None:
            self._held = None

    def arguments(self, tensors: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
        """Return the inputs, given in their order, as positional and keyword arguments."""
        names = [spec.name for spec in self.inputs or ()]
        first = len(tensors) - self.keywords
        return list(tensors[:first]), dict(zip(names[first:], tensors[first:], strict=True))

    def own_outputs(self, output: Any) -> Any:
        """Return outputs that callers may modify and keep: a copy where the program keeps the memory, or rows share it.

        A program keeps the memory of its weights, and memory that it returned in two successive runs.
        """
        last_run, self._last_storages = {storage.cdata for storage in self._last_storages}, []
        return map_tensors(output, lambda tensor: self._own_output(tensor, last_run))

    def _own_output(self, output: Any, last_run: set[int]) -> Any:
        if not isinstance(output, torch.Tensor) or output.layout != torch.strided:
            return output
        storage = torch_untyped.multiprocessing.reductions.StorageWeakRef(output.untyped_storage())
        if storage.cdata in last_run:
            self._held_addresses.add(_storage_address(output))
        self._last_storages.append(storage)
        rows_share_memory = output.ndim > 0 and output.shape[0] > 1 and output.stride(0) == 0
        if output.requires_grad or rows_share_memory or _storage_address(output) in self._held_addresses:
            return output.detach().clone()
        return owned(output)


def _held_by(module: torch.nn.Module | None) -> Iterator[tuple[str, tuple[torch.Tensor, int]]]:
    """Yield the tensors that a module holds, by name, with numbers that change when something writes to them."""
    for place, part in module.named_modules() if module is not None else ():
        tensors = [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]
        for name, value in (*tensors, *vars(part).items()):
            for number, tensor in enumerate(tensors_of(value)):
                yield f"{place}.{name}.{number}", (tensor, 0 if tensor.is_inference() else tensor._version)


def _storage_address(tensor: torch.Tensor) -> int | None:
    """Return the address of the memory that a tensor is a part of; None if it has none."""
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided and tensor.numel() else None


_lock = threading.Lock()  # guards _load_locks
_load_locks: weakref.WeakValueDictionary[tuple[object, ...], threading.Lock] = weakref.WeakValueDictionary()
_programs: weakref.WeakValueDictionary[tuple[object, ...], Program] = weakref.WeakValueDictionary()


def _reset_after_fork() -> None:
    """Forget the locks, which threads of the parent may hold."""
    global _lock, _load_locks
    _lock, _load_locks = threading.Lock(), weakref.WeakValueDictionary()


os.register_at_fork(after_in_child=_reset_after_fork)


def open_program(source: Source, owner: str) -> Program:
    """Return the program of a source, shared with its other users; it is freed with the last of them.

    `owner` is the name of the backend, for errors. Raises ConfigError if the program cannot be loaded.
    """
    _check_source(source, owner)
    key = (source, tuple(_file_version(path) for path in (source.model, source.weights) if path))
    with _lock:
        load_lock = _load_locks.setdefault(key, threading.Lock())
    with load_lock:  # one for each program, because a factory may open another program
        program = _programs.get(key)
        if program is None:
            program = _programs[key] = _load(source, owner)
            if source.device.type == "cuda":
                synchronize(source.device)  # other streams than the current one will read the weights
    return program


def _file_version(path: str) -> tuple[str, int, int]:
    status = os.stat(path)
    return os.path.realpath(path), status.st_mtime_ns, status.st_size


def _check_source(source: Source, owner: str) -> None:
    if bool(source.model) == bool(source.factory):
        problem = "both are set" if source.model else "neither is set"
        raise hami.ConfigError(
            f'{owner} needs either "model" (a .pt2 or TorchScript file) or "factory" (package.module:name); {problem}'
        )
    if source.model and (source.weights or source.arguments):
        raise hami.ConfigError(
            f'{owner}: "weights" and "arguments" can only be used with "factory"; the file "model" contains its weights'
        )
    for name, path in (("model", source.model), ("weights", source.weights)):
        if path and not os.path.isfile(path):
            raise hami.ConfigError(f'{owner}: file "{path}" of "{name}" not found (full path {os.path.realpath(path)})')


def _load(source: Source, owner: str) -> Program:
    if source.factory:
        return Program(_placed(_call_factory(source, owner), source), max_rows="auto")
    names = _archive_names(source.model)
    if names is None:
        size = os.path.getsize(source.model)
        raise hami.ConfigError(
            f'{owner}: "{source.model}" ({size} bytes) is truncated or not a program; expected a file written by '
            "torch.export.save, torch._inductor.aoti_compile_and_package or torch.jit.save"
        )
    try:
        with _torch_load_warnings_ignored():
            return _load_file(names, source, owner)
    except hami.Error:
        raise
    except Exception as error:  # torch's loaders raise many types
        raise hami.ConfigError(
            f'{owner}: torch {torch.__version__} cannot load "{source.model}": {first_line(error)}'
        ) from error


@contextmanager
def _torch_load_warnings_ignored() -> Iterator[None]:
    """Ignore warnings that torch's loaders emit about themselves, so that they cannot fail the load as errors."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
        warnings.filterwarnings("ignore", "`torch.jit.load` is deprecated")  # a FutureWarning from torch 2.14 on
        yield


def _load_file(names: list[str], source: Source, owner: str) -> Program:
    if any("/aotinductor/" in name for name in names):
        return _load_aotinductor(source, owner)
    if any(name.endswith("/constants.pkl") for name in names) and not source.model.endswith(".pt2"):
        module = torch_untyped.jit.load(source.model, map_location=source.device)
        return Program(_placed(module.eval(), source), max_rows="auto")
    if any(name.endswith("/data.pkl") for name in names) and not source.model.endswith(".pt2"):
        raise hami.ConfigError(
            f'{owner}: "{source.model}" contains weights, not a program; pass it as "weights", together with the '
            '"factory" that makes the module'
        )
    return _load_exported(source)


def _archive_names(path: str) -> list[str] | None:
    """Return the names in a zip archive, None if the file is not a complete one."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except zipfile.BadZipFile:
        return None
    if members and min(member.header_offset for member in members) > 0:
        return None  # truncated: the directory that was found belongs to an archive inside this one
    return [member.filename for member in members]


def _call_factory(source: Source, owner: str) -> torch.nn.Module:
    module_name = source.factory.partition(":")[0]
    try:
        module = _factories.find(source.factory, owner)(**_arguments(source.arguments, owner))
    except hami.Error:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise hami.ConfigError(
                f'{owner}: module "{error.name}" of factory "{source.factory}" not found on sys.path; add its folder '
                "to PYTHONPATH, or pass the file to the hami command with --import FILE"
            ) from error
        raise hami.ConfigError(
            f'{owner}: factory "{source.factory}" failed: {type(error).__name__}: {first_line(error)}'
        ) from error
    if not isinstance(module, torch.nn.Module):
        raise hami.ConfigError(
            f'{owner}: factory "{source.factory}" must return a torch.nn.Module, got {type(module).__name__}'
        )
    if source.weights:
        load_weights(module, source.weights, source.factory, owner)
    if source.device.type == "cuda":
        reject_own_cuda_graphs(module, owner)
    return module.eval()


def _arguments(given: Sequence[str], owner: str) -> dict[str, Any]:
    """Parse key=value; a value that is valid JSON is read as JSON, any other value is text."""
    arguments = {}
    for argument in given:
        key, equals, value = argument.partition("=")
        if not equals or not key.strip():
            raise hami.ConfigError(f'{owner}: each entry of "arguments" must have the form key=value, got "{argument}"')
        try:
            arguments[key.strip()] = json.loads(value)
        except ValueError:
            arguments[key.strip()] = value.strip()
    return arguments


def _placed(module: Any, source: Source) -> Any:
    """Return the module on the device, in the dtype and memory format of the source."""
    module = module.to(source.device)
    if source.dtype is not None:
        module = module.to(source.dtype)
    return module.to(memory_format=torch.channels_last) if source.channels_last else module


def _load_exported(source: Source) -> Program:
    program = torch.export.load(source.model)
    rows, max_rows = _row_range(program)
    inputs, keywords = _exported_inputs(program), _keyword_inputs(program)
    try:
        from torch.export.passes import move_to_device_pass
    except ImportError:  # torch 2.3: tensors that the program creates stay on the device that it was exported for
        pass
    else:
        program = move_to_device_pass(program, source.device)
    return Program(_placed(program.module(), source), rows, max_rows, inputs, keywords)


def _user_inputs(program: Any) -> list[tuple[str, Any]]:
    """Return the name and the example of each input of an exported program, in order."""
    names = set(program.graph_signature.user_inputs)
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    return [(node.name, node.meta.get("val")) for node in placeholders]


def _exported_inputs(program: Any) -> list[InputSpec] | None:
    """Return what an exported program takes; None if an input is not a tensor with a batch axis."""
    inputs = _user_inputs(program)
    if not inputs or not all(isinstance(value, torch.Tensor) and value.ndim for _, value in inputs):
        return None
    return [
        InputSpec(name, value.dtype, tuple(size if isinstance(size, int) else -1 for size in value.shape))
        for name, value in inputs
    ]


def _keyword_inputs(program: Any) -> int:
    """Return how many inputs of an exported program are passed by name; they follow the others."""
    tree, spec = torch_untyped.utils._pytree, program.call_spec.in_spec
    _, keywords = tree.tree_unflatten([None] * spec.num_leaves, spec)
    return len(keywords)


_NO_LIMIT = 2**31  # for no limit, torch states infinity or a number far above this


def _row_range(program: Any) -> tuple[int | None, int | Literal["auto"] | None]:
    """Return the fixed and the maximum number of rows of an exported program, as in Program."""
    first_sizes = [value.shape[0] for _, value in _user_inputs(program) if getattr(value, "ndim", 0)]
    if not first_sizes:
        return None, None
    if all(isinstance(size, int) for size in first_sizes):
        return (first_sizes[0], first_sizes[0]) if len(set(first_sizes)) == 1 else (None, None)
    for size in first_sizes:
        limits = None if isinstance(size, int) else program.range_constraints.get(size.node.expr)
        if limits is not None and bool(limits.upper < _NO_LIMIT):  # int() of torch's infinity raises, by version
            return None, int(limits.upper)
    return None, None if any(isinstance(size, int) for size in first_sizes) else "auto"


def _load_aotinductor(source: Source, owner: str) -> Program:
    """Load an AOTInductor package, which is compiled for one device type and one dtype."""
    hami.native.check_library(source.model, f"model of {owner}, an AOTInductor package,")
    load = getattr(torch._inductor, "aoti_load_package", None)
    if load is None:
        raise hami.ConfigError(
            f'{owner}: "{source.model}" is an AOTInductor package, which torch {torch.__version__} cannot load; '
            "install torch 2.6 or newer"
        )
    if source.dtype is not None or source.channels_last:
        raise hami.ConfigError(
            f'{owner}: "{source.model}" is an AOTInductor package, which is already compiled; remove "dtype" and '
            '"channels_last"'
        )
    compiled = load(source.model) if source.device.type == "cpu" else _load_on_gpu(load, source)
    device_type = _device_type_of(compiled)
    if device_type is not None and device_type != source.device.type:
        raise hami.ConfigError(
            f'{owner}: "{source.model}" is an AOTInductor package compiled for {device_type}, but device is '
            f'"{source.device}"; set "device" to {device_type}, or compile the package for {source.device.type}'
        )
    return Program(compiled)


def _load_on_gpu(load: Callable[..., Any], source: Source) -> Any:
    try:
        return load(source.model, device_index=source.device.index)
    except TypeError:  # torch 2.6 and 2.7 have no device_index
        with torch.cuda.device(source.device):
            return load(source.model)


def _device_type_of(compiled: Any) -> str | None:
    try:
        return str(compiled.get_metadata().get("AOTI_DEVICE_KEY")) or None
    except (AttributeError, RuntimeError):
        return None


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its type if the message is empty."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
