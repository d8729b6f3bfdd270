"""From a file or a factory to a module that runs on a device; one per process and setting, shared by its users.

What differs between versions of torch is asked of torch here: whether a function is there, never which version it is.
"""

from __future__ import annotations

import importlib
import json
import os
import threading
import warnings
import weakref
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import hami

from hami_torch._compiled import CompiledModule, is_compiled, refuse_own_graphs
from hami_torch._device import synchronize
from hami_torch._tensor import each_tensor
from hami_torch._torch import torch
from hami_torch._weights import load_weights


class Source(NamedTuple):
    """What a program is made from, and how it is to run."""

    model: str  # the file; "" if a factory makes it
    factory: str  # "package.module:name"; "" if it comes from a file
    arguments: tuple[str, ...]  # of the factory, each key=value
    weights: str  # a state dict for what the factory makes
    device: torch.device
    dtype: torch.dtype | None  # None: as it is
    channels_last: bool


class Program:
    """Something to `run` with tensors, `call` before it was made fit for threads.

    `rows` is the number of rows it takes if that is fixed, `most` the most. `ran`: it ran to its end once; `writes`: it
    was seen to write to its input. It is given copies before the one, and from the other on.
    """

    ran = False
    writes = False

    def __init__(self, call: Callable[..., Any], rows: int | None = None, most: int | None = None) -> None:
        self.call = call
        self.compiles = is_compiled(call)
        self.run = CompiledModule(call) if self.compiles else call
        self.rows = rows
        self.most = most
        held = (*call.parameters(), *call.buffers()) if isinstance(call, torch.nn.Module) else ()
        self._held = {_address(tensor) for tensor in held} - {None}
        self._last: list[Any] = []  # weak references to the memory of the last run's outputs

    def given_away(self, output: Any) -> Any:
        """Return outputs that callers may change: copies where the program goes on with one, or its rows are one.

        It does so with its weights, and with what it gave with the last run too: others will write to that, or it will.
        """
        last, self._last = {each.cdata for each in self._last}, []
        return each_tensor(output, lambda tensor: self._given_away(tensor, last))

    def _given_away(self, output: Any, last: set[int]) -> Any:
        if not isinstance(output, torch.Tensor) or output.layout != torch.strided:
            return output
        storage = torch.multiprocessing.reductions.StorageWeakRef(output.untyped_storage())
        if storage.cdata in last:
            self._held.add(_address(output))
        self._last.append(storage)
        rows_are_one = output.ndim > 0 and output.shape[0] > 1 and output.stride(0) == 0
        if output.requires_grad or rows_are_one or _address(output) in self._held:
            return output.detach().clone()
        return output


def _address(tensor: torch.Tensor) -> int | None:
    """Return where the memory of a tensor begins, of which it may be a part."""
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided and tensor.numel() else None


_lock = threading.Lock()  # guards _making
_making: weakref.WeakValueDictionary[tuple[object, ...], threading.Lock] = weakref.WeakValueDictionary()
_open: weakref.WeakValueDictionary[tuple[object, ...], Program] = weakref.WeakValueDictionary()


def open_program(source: Source, owner: str) -> Program:
    """Return the program, the one in use if there is one; it is freed with its last user. Errors are ConfigError."""
    _check(source, owner)
    key = (source, tuple(_stamp(path) for path in (source.model, source.weights) if path))
    with _lock:
        making = _making.setdefault(key, threading.Lock())
    with making:  # it is made once; one lock for each, since a factory may open others
        program = _open.get(key)
        if program is None:
            program = _open[key] = _make(source, owner)
            if source.device.type == "cuda":
                synchronize(source.device)  # other streams than this one will read the weights
    return program


def _stamp(path: str) -> tuple[str, int, int]:
    status = os.stat(path)
    return os.path.realpath(path), status.st_mtime_ns, status.st_size


def _check(source: Source, owner: str) -> None:
    if bool(source.model) == bool(source.factory):
        given = "both are" if source.model else "neither is"
        raise hami.ConfigError(
            f'{owner} takes "model" (a .pt2 or TorchScript file) or "factory" (package.module:name), {given} given'
        )
    if source.model and (source.weights or source.arguments):
        raise hami.ConfigError(f'{owner}: "weights" and "arguments" go with "factory"; the file "model" has its own')
    for name, path in (("model", source.model), ("weights", source.weights)):
        if path and not os.path.isfile(path):
            raise hami.ConfigError(
                f'{owner}: there is no file "{path}", given as "{name}" (looked for {os.path.realpath(path)})'
            )


def _make(source: Source, owner: str) -> Program:
    if source.factory:
        return Program(_placed(_made_by_factory(source, owner), source))
    names = _names_in(source.model)
    if names is None:
        size = os.path.getsize(source.model)
        raise hami.ConfigError(
            f'{owner}: "{source.model}" ({size} bytes) is truncated or holds no program; it takes what '
            "torch.export.save, torch._inductor.aoti_compile_and_package or torch.jit.save writes"
        )
    try:
        with _without_torchs_warnings():
            return _read(names, source, owner)
    except hami.Error:
        raise
    except Exception as error:  # torch's readers raise what they like
        raise hami.ConfigError(
            f'{owner}: torch {torch.__version__} cannot load "{source.model}": {first_line(error)}'
        ) from error


@contextmanager
def _without_torchs_warnings() -> Iterator[None]:
    """Leave out what torch says of its own reading; where warnings are errors that would be the end of it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
        warnings.filterwarnings("ignore", "`torch.jit.load` is deprecated")  # a FutureWarning from torch 2.14 on
        yield


def _read(names: list[str], source: Source, owner: str) -> Program:
    if any("/aotinductor/" in name for name in names):
        return _compiled(source, owner)
    if any(name.endswith("/constants.pkl") for name in names) and not source.model.endswith(".pt2"):
        return Program(_placed(torch.jit.load(source.model, map_location=source.device).eval(), source))
    if any(name.endswith("/data.pkl") for name in names) and not source.model.endswith(".pt2"):
        raise hami.ConfigError(
            f'{owner}: "{source.model}" holds weights, not a program; give it as "weights", with the "factory" '
            "that makes their module"
        )
    return _exported(source)


def _names_in(path: str) -> list[str] | None:
    """Return the names in an archive, None if it is none or its end is missing."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except zipfile.BadZipFile:
        return None
    if members and min(member.header_offset for member in members) > 0:
        return None  # cut off: what was found is the end of an archive inside this one
    return [member.filename for member in members]


def _made_by_factory(source: Source, owner: str) -> torch.nn.Module:
    module_name, colon, path = source.factory.partition(":")
    if not colon or not path:
        raise hami.ConfigError(f'{owner}: "factory" is package.module:name, got "{source.factory}"')
    try:
        factory: Any = importlib.import_module(module_name)
        for part in path.split("."):
            factory = getattr(factory, part)
        module = factory(**_arguments(source.arguments, owner))
    except hami.Error:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise hami.ConfigError(
                f'{owner}: there is no module "{error.name}" on sys.path, for factory "{source.factory}"; '
                "its folder belongs there, and the hami command takes --import FILE"
            ) from error
        raise hami.ConfigError(
            f'{owner}: factory "{source.factory}" failed: {type(error).__name__}: {first_line(error)}'
        ) from error
    if not isinstance(module, torch.nn.Module):
        raise hami.ConfigError(
            f'{owner}: factory "{source.factory}" gave {type(module).__name__}, not a torch.nn.Module'
        )
    if source.weights:
        load_weights(module, source.weights, source.factory, owner)
    if source.device.type == "cuda":
        refuse_own_graphs(module, owner)
    return module.eval()


def _arguments(given: Sequence[str], owner: str) -> dict[str, Any]:
    """Read key=value, each value as JSON if it is that, else as text."""
    arguments = {}
    for argument in given:
        key, equals, value = argument.partition("=")
        if not equals or not key.strip():
            raise hami.ConfigError(f'{owner}: "arguments" are written key=value, got "{argument}"')
        try:
            arguments[key.strip()] = json.loads(value)
        except ValueError:
            arguments[key.strip()] = value.strip()
    return arguments


def _placed(module: Any, source: Source) -> Any:
    module = module.to(source.device)
    if source.dtype is not None:
        module = module.to(source.dtype)
    return module.to(memory_format=torch.channels_last) if source.channels_last else module


def _exported(source: Source) -> Program:
    program = torch.export.load(source.model)
    rows, most = _range_of(program)
    try:
        from torch.export.passes import move_to_device_pass
    except ImportError:  # torch 2.3: tensors that the program makes itself stay on the device that it was exported for
        pass
    else:
        program = move_to_device_pass(program, source.device)
    return Program(_placed(program.module(), source), rows, most)


def _range_of(program: Any) -> tuple[int | None, int | None]:
    """Return the rows of axis 0 that an exported program takes: N if it is fixed, else the most if that is said."""
    inputs = set(program.graph_signature.user_inputs)
    firsts = [
        node.meta["val"].shape[0]
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in inputs and getattr(node.meta.get("val"), "ndim", 0)
    ]
    if not firsts:
        return None, None
    if all(isinstance(first, int) for first in firsts):
        return (firsts[0], firsts[0]) if len(set(firsts)) == 1 else (None, None)
    for first in firsts:
        limits = None if isinstance(first, int) else program.range_constraints.get(first.node.expr)
        if limits is not None:
            try:
                most = int(limits.upper)
            except (OverflowError, TypeError, ValueError):  # infinite
                continue
            if most < 2**31:
                return None, most
    return None, None


def _compiled(source: Source, owner: str) -> Program:
    """Open what AOTInductor compiled, for one kind of device and one dtype."""
    load = getattr(torch._inductor, "aoti_load_package", None)
    if load is None:
        raise hami.ConfigError(
            f'{owner}: "{source.model}" is compiled by AOTInductor, which torch {torch.__version__} cannot load; '
            "2.6 or newer can"
        )
    if source.dtype is not None or source.channels_last:
        raise hami.ConfigError(
            f'{owner}: "{source.model}" is compiled by AOTInductor; "dtype" and "channels_last" cannot change it'
        )
    compiled = load(source.model) if source.device.type == "cpu" else _load_on(load, source)
    made_for = _device_type_of(compiled)
    if made_for is not None and made_for != source.device.type:
        raise hami.ConfigError(
            f'{owner}: "{source.model}" is compiled by AOTInductor for {made_for}, and device is "{source.device}"'
        )
    return Program(compiled)


def _load_on(load: Callable[..., Any], source: Source) -> Any:
    try:
        return load(source.model, device_index=source.device.index)
    except TypeError:  # torch 2.6 and 2.7 take no index
        with torch.cuda.device(source.device):
            return load(source.model)


def _device_type_of(compiled: Any) -> str | None:
    try:
        return str(compiled.get_metadata().get("AOTI_DEVICE_KEY")) or None
    except (AttributeError, RuntimeError):
        return None


def first_line(error: BaseException) -> str:
    """Return the first line of what an exception says."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
