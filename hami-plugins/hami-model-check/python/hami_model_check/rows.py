"""prove_rows: proves from an ONNX file that a row of a batch never depends on its neighbours, or says why it may."""

from __future__ import annotations

import functools
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import hami

from hami_model_check._rows.guess import guesses, input_values
from hami_model_check._rows.model import Model, load
from hami_model_check._rows.value import Batch, Known, Lost, Unknown, Value
from hami_model_check._rows.walk import TooManyNodes, Walk
from hami_model_check.free_axis import FREE
from hami_model_check.onnx import read_onnx

_FIELDS_PER_NODE = 256  # with attributes; read_onnx has limited the number of nodes
_MORE_FIELDS = 1_000_000
_STEPS_PER_NODE = 4  # loops are followed several times
_MORE_STEPS = 10_000

_WORST_FIRST = ("mixes", "unknown", "independent")

Axes = tuple[tuple[str, int | None], ...]

Verdict = Literal["independent", "mixes", "unknown"]


@dataclass(frozen=True)
class Reason:
    """Why the rows of a batch influence each other, or why that is not known.

    Attributes:
        operator: the operator with its domain, for example "Softmax" or "com.microsoft.Attention"; empty if the reason
            is not an operator.
        node: the name of the node; empty if it has none.
        opset: the version of the operator's domain that the model imports.
        why: a part of a sentence, for example "normalises along axis 0, which is the batch axis".
    """

    operator: str
    node: str
    opset: int
    why: str

    def __str__(self) -> str:
        if not self.operator:
            return self.why
        node = f', node "{self.node}"' if self.node else ""
        return f"{self.operator} (opset {self.opset}{node}) {self.why}"


@dataclass(frozen=True)
class RowProof:
    """What prove_rows found.

    Attributes:
        verdict: "independent": each row of the outputs depends only on the same row of the inputs; "mixes": rows
            influence each other; "unknown": neither is proven.
        input_axes: the batch axis of each input; None: it has none, and must be equal in all joined requests.
        output_axes: the batch axis of each output; None: the output is the same for all rows. Complete if the verdict
            is "independent".
        reason: the first cause of another verdict than "independent".
        quantized: whether the cause is a scale that is computed from all rows (dynamic quantisation). Static scales
            change that.
    """

    verdict: Verdict
    input_axes: Mapping[str, int | None] = field(default_factory=dict)
    output_axes: Mapping[str, int | None] = field(default_factory=dict)
    reason: Reason | None = None
    quantized: bool = False


def prove_rows(
    path: str | os.PathLike[str],
    *,
    backend: str,
    engine: str = "onnx",
    batch_axes: Mapping[str, int | None] | None = None,
    freed: Sequence[int] = (),
    max_nodes: int = 100_000,
    max_graph_depth: int = 10,
    max_call_depth: int = 64,
) -> RowProof:
    """Prove that the rows of a batch do not influence each other; a file that has not changed is not read again.

        proof = prove_rows("detector.onnx", backend="OnnxTensor")
        if proof.verdict != "independent":
            print(proof.reason)

    Args:
        path: an ONNX file.
        backend: the backend that opens it, for messages.
        engine: "onnx" for the specification, "openvino" for what OpenVINO computes.
        batch_axes: the batch axis of inputs and outputs by name, as far as it is known. For other inputs, axis 0 is
            tried first, then other axes.
        freed: offsets of `find_fixed_ones`, where the proof sees a free axis.
        max_nodes, max_graph_depth, max_call_depth: limits of `read_onnx`.

    Raises:
        hami.ConfigError, OSError: as `read_onnx`.
    """
    limits = {"max_nodes": max_nodes, "max_graph_depth": max_graph_depth, "max_call_depth": max_call_depth}
    nodes = read_onnx(path, backend=backend, empty_inputs=True, **limits).nodes
    status = os.stat(path)
    given = None if batch_axes is None else tuple(sorted(batch_axes.items()))
    try:
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        return _prove(os.path.realpath(path), stamp, engine, given, nodes, tuple(freed))
    except ValueError as error:
        raise hami.ConfigError(f'{backend}: "{os.fspath(path)}" is not a valid ONNX model: {error}') from None


@functools.lru_cache
def _prove(
    path: str, stamp: tuple[int, ...], engine: str, axes: Axes | None, nodes: int, freed: tuple[int, ...]
) -> RowProof:
    access = mmap.ACCESS_COPY if freed else mmap.ACCESS_READ  # the file is not written
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=access) as data:
        for at in freed:
            data[at : at + len(FREE)] = FREE
        model = load(data, nodes * _FIELDS_PER_NODE + _MORE_FIELDS)
    steps = _STEPS_PER_NODE * nodes + _MORE_STEPS
    first: RowProof | None = None
    named = dict(axes or ())
    found, why = guesses(model, named)
    for guess in found:
        proof = _as_named(_proof(model, engine, guess, steps), named)
        if proof.verdict == "independent":
            return proof
        first = first or proof
    return first or RowProof("unknown", named, reason=Reason("", "", 0, why))


def _as_named(proof: RowProof, named: Mapping[str, int | None]) -> RowProof:
    """Return the proof, or that it contradicts the axes of outputs that the caller named."""
    for name, axis in proof.output_axes.items():
        if named.get(name, axis) != axis:
            found = "no batch axis" if axis is None else f"its rows along axis {axis}"
            reason = Reason("", "", 0, f'output "{name}" has {found}, not along the axis {named[name]} that was named')
            return replace(proof, verdict="unknown", reason=reason)
    return proof


def _proof(model: Model, engine: str, axes: Mapping[str, int | None], steps: int) -> RowProof:
    try:
        inputs = input_values(model, axes)
    except Unknown as error:
        return RowProof("unknown", dict(axes), reason=Reason("", "", 0, str(error)))
    found: list[RowProof] = []
    try:
        for values in Walk(model, engine, steps).outputs(inputs):
            if not any(isinstance(value, Lost) and value.fails for value in values):
                found.append(_judged(model, axes, values))
    except (TooManyNodes, RecursionError):
        return RowProof("unknown", dict(axes), reason=Reason("", "", 0, "the model is too large to follow its loops"))
    if not found:
        return RowProof("unknown", dict(axes), reason=Reason("", "", 0, "an operator fails on each input"))
    worst = min(found, key=lambda proof: _WORST_FIRST.index(proof.verdict))
    if worst.verdict == "independent" and any(proof.output_axes != worst.output_axes for proof in found):
        text = "the batch axis of an output depends on the branch that the model takes"
        return RowProof("unknown", dict(axes), reason=Reason("", "", 0, text))
    return worst


def _judged(model: Model, axes: Mapping[str, int | None], values: Sequence[Known]) -> RowProof:
    output_axes: dict[str, int | None] = {}
    lost: list[Lost] = []
    for name, value in zip(model.graph.outputs, values, strict=True):
        problem = value if isinstance(value, Lost) else _problem(name, value)
        if problem is not None:
            lost.append(problem)
        elif isinstance(value, Value):
            output_axes[name] = value.batch.axis if value.batch is not None else None
    if not lost:
        return RowProof("independent", dict(axes), output_axes)
    worst = min(lost, key=lambda value: not value.mixes)
    reason = Reason(worst.operator, worst.node, worst.opset, worst.why)
    return RowProof("mixes" if worst.mixes else "unknown", dict(axes), output_axes, reason, worst.quantized)


def _problem(name: str, value: Value) -> Lost | None:
    """Return why the rows of an output cannot be given to their requests."""
    if value.of_size:
        return Lost(True, "", "", 0, f'output "{name}" is computed from the number of rows')
    if value.is_list and value.batch != Batch(0):
        return Lost(False, "", "", 0, f'output "{name}" is a list or a map, which has no batch axis')
    if value.batch is not None and value.batch[1:] != (1, 1):
        return Lost(
            False, "", "", 0, f'output "{name}" has several elements for each row along axis {value.batch.axis}'
        )
    return None
