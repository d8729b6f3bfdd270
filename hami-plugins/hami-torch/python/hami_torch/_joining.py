"""decide: finds out, by a test, whether the requests of a program may be joined."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hami_model_check.findings import stamp_of_package
from hami_model_check.joining import Axes, Joining, Measurement, decide_joining
from hami_model_check.row_test import RowInput, compare_rows
from numpy.typing import NDArray

from hami_torch._batch import WITHOUT_NUMPY, as_array, named_outputs, tensor_versions
from hami_torch._compiled import eager
from hami_torch._program import InputSpec, Program, Source
from hami_torch._tensor import dtype_name
from hami_torch._torch import torch

_NODES_PER_MODULE = 4  # for the tolerance, where a program has no graph to count
_UNKNOWN_NODES = 100

_lock = threading.Lock()  # held during a test, so that the instances of a node run it once


def _reset_after_fork() -> None:
    """Replace the lock, which a thread of the parent may hold."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)


def engine_name(device: torch.device) -> str:
    """Return what runs a program, for the key of a finding: also this package, which chooses the rows of the test."""
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return f"torch {torch.__version__} {card} {stamp_of_package(__file__)}"


def decide(
    source: Source,
    program: Program | None,
    *,
    batched: bool | None,
    settings: object,
    measure: Callable[[], Measurement] | None,
) -> Joining:
    """Decide whether requests may be joined, and log once if the user overrides a finding.

    A finding about a file is kept by its hash; that about a factory, whose code has no hash, as long as the program.

    Args:
        source: the model.
        program: what it was loaded as; None: it is not loaded.
        batched: what the user says: True joins, False never does, None asks the test.
        settings: what else changes the answer.
        measure: runs the test; None: the inputs are unknown, or the program is not loaded.
    """
    parts = [source.device.type, str(source.dtype), source.channels_last, settings]
    key = repr(parts)
    with _lock:
        joining = None if program is None or batched is False else program.joinings.get(key)
        if joining is None:
            joining = decide_joining(
                source.model or None,
                backend="TorchModel",
                engine=engine_name(source.device),
                rules=None,
                batched=batched,
                measure=measure,
                settings=parts,
            )
            if program is not None and joining.tested and joining.source != "declared":
                program.joinings[key] = joining
    if batched and joining.source != "declared":
        joining = replace(joining, joins=True, source="declared")
    joining.warn_of_override("TorchModel", source.model or source.factory)
    return joining


def row_inputs(inputs: Sequence[InputSpec]) -> list[RowInput]:
    """Return the inputs for compare_rows. Values of a type that NumPy lacks are made in float32."""
    return [
        RowInput(
            spec.name,
            np.dtype(np.float32 if spec.dtype in WITHOUT_NUMPY else dtype_name(spec.dtype)),
            tuple(None if size < 0 else size for size in spec.shape),
            0,
        )
        for spec in inputs
    ]


def settings_of(params: Mapping[str, Any]) -> list[Any]:
    """Return the parameters of a TorchModel that change what a test runs."""
    names = ("row_shape", "row_dtype", "input_mean", "input_std", "input_scale")
    return [params[name] for name in names if params.get(name) not in (None, [], 1.0)]


def measure_rows(
    program: Program,
    inputs: Sequence[InputSpec],
    device: torch.device,
    convert: Callable[[torch.Tensor, torch.dtype], torch.Tensor],
) -> Measurement:
    """Run rows alone and together.

    Args:
        program: the model; what torch.compile made of it is not run, so that nothing is compiled.
        inputs: what it takes.
        device: where it is.
        convert: makes the argument of the program from an input and its dtype.
    """
    state, run = _State(program.call), eager(program.call)
    computed_in = coarsest_type(program, device)

    def run_arrays(arrays: list[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        tensors = [torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays]
        converted = [convert(tensor, spec.dtype) for tensor, spec in zip(tensors, inputs, strict=True)]
        args, kwargs = program.arguments(converted)
        with torch.no_grad():
            output = run(*args, **kwargs)
        state.check()
        return {name: np.array(as_array(part)) for name, part in named_outputs(output).items()}

    most = program.max_rows if isinstance(program.max_rows, int) else None
    test = compare_rows(
        run_arrays, row_inputs(inputs), None, nodes=node_count(program), computed_in=computed_in, most_rows=most
    )
    axes: Axes = {spec.name: 0 for spec in inputs}
    largest = test.largest.relative if test.largest else None
    if state.changed:
        why = f'a run changes the buffer "{state.changed}" of the model, so that answers depend on earlier requests'
        return Measurement("mixes", axes, {}, why, largest)
    if test.verdict == "not run":
        return Measurement("unknown", {}, {}, test.why, largest)
    if test.verdict == "differs":
        return Measurement("mixes", axes, test.output_axes, test.why, largest)
    elsewhere = [name for name, axis in test.output_axes.items() if axis != 0]
    if elsewhere:
        why = f"axis 0 of the output {', '.join(elsewhere)} is not that of the rows"
        return Measurement("unknown", {}, {}, why, largest)
    return Measurement("independent", axes, test.output_axes, "", largest)


def node_count(program: Program) -> int:
    """Return the number of nodes of a program, an estimate if it has no graph."""
    call: Any = program.call
    graph = getattr(call, "graph", None)
    nodes = getattr(graph, "nodes", None)
    if isinstance(call, torch.jit.ScriptModule):
        nodes = call.inlined_graph.nodes()
    if nodes is not None and not callable(nodes):
        return sum(1 for _ in nodes)
    if isinstance(call, torch.nn.Module):
        return _NODES_PER_MODULE * sum(1 for _ in call.modules())
    return _UNKNOWN_NODES


def coarsest_type(program: Program, device: torch.device) -> str:
    """Return the coarsest type that a program computes in, as `tolerance` takes it; TF32 counts as float16."""
    module: Any = program.call
    types = {tensor.dtype for tensor in module.parameters()} if isinstance(module, torch.nn.Module) else set()
    if torch.bfloat16 in types:
        return "bfloat16"
    tf32 = device.type == "cuda" and (torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32)
    return "float16" if torch.float16 in types or tf32 else ""


class _State:
    """Notices a program whose runs change its buffers: then a row depends on earlier rows."""

    def __init__(self, call: Any) -> None:
        self.changed = ""
        self._buffers = dict(call.named_buffers()) if isinstance(call, torch.nn.Module) else {}
        self._versions: list[int] | None = None  # None before the first run, which may initialise buffers

    def check(self) -> None:
        versions = tensor_versions(list(self._buffers.values()))
        if self._versions is not None and versions != self._versions:
            pairs = zip(self._buffers, versions, self._versions, strict=True)
            self.changed = next(name for name, now, before in pairs if now != before)
            raise RuntimeError(self.changed)
        self._versions = versions
