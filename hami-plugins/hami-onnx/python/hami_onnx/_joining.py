"""join_rows: finds out whether the requests of a model may be joined, and along which axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import hami
from hami_model_check.findings import stamp_of_package
from hami_model_check.joining import Axes, Joining, Measurement, decide_joining
from hami_model_check.row_test import RowInput, Run, compare_rows
from hami_model_check.row_watch import shared_watch

from hami_onnx._model import Model
from hami_onnx._rows import Rows, candidate_axes, first_axes, read_batch_axes
from hami_onnx._runtime import version
from hami_onnx._specs import TensorSpec
from hami_onnx.session import find_files, read_model


def engine_name() -> str:
    """Return what runs a model, for the key of a finding: also this package, which chooses the rows of the test."""
    return f"onnxruntime {version()} {stamp_of_package(__file__)}"


def join_rows(
    model: Model,
    path: str,
    *,
    batched: bool | None,
    batch_axes: Sequence[str],
    rules: str | None,
    settings: object,
    limits: Mapping[str, int],
    backend: str,
) -> None:
    """Set `rows`, `joining` and `watch` of a model.

    Args:
        rules: those of `proof_rules`.

    Raises:
        hami.ConfigError: `batch_axes` or `batched` does not fit the model.
    """
    named = read_batch_axes(batch_axes, model.inputs, model.outputs, backend)
    axes = named or first_axes(model.inputs, model.outputs)
    joining = _decide(
        path,
        batched=batched if not batched or axes else None,  # without axes, the proof or the test must find them
        named=named,
        measure=lambda nodes: _measure(model, named, nodes),
        rules=rules,
        settings=settings,
        limits=limits,
        backend=backend,
    )
    if batched and (joining.source == "declared" or not joining.joins):
        joining = _declared(joining, model, axes, backend)
        joining.warn_of_override(backend, path)
    model.joining = joining
    model.rows = Rows.of(joining, model.inputs, model.outputs, batched)
    if model.rows.joins and not (joining.source == "declared" and joining.verdict == "mixes"):
        nodes = read_model(path, limits, backend).nodes
        model.watch = shared_watch(model.session, backend, path, nodes=nodes, stops=joining.source != "declared")


def prove_ahead(
    *,
    path: str,
    batched: bool | None,
    batch_axes: Sequence[str],
    rules: str | None,
    settings: object,
    limits: Mapping[str, int],
    backend: str,
) -> Callable[[], object] | None:
    """Return what finds the proof that join_rows needs, so that it may run before the session exists; or None.

    The proof is then in memory. Axes that the user names are checked with the session first.
    """
    if batched is False or batch_axes or rules is None:
        return None
    return lambda: _decide(
        path, batched=None, named={}, measure=None, rules=rules, settings=settings, limits=limits, backend=backend
    )


def _decide(
    path: str,
    *,
    batched: bool | None,
    named: Axes,
    measure: Callable[[int], Measurement] | None,
    rules: str | None,
    settings: object,
    limits: Mapping[str, int],
    backend: str,
) -> Joining:
    """Decide with the test `measure`, which takes the number of nodes."""
    opened, stamps = find_files(path, limits, backend)
    nodes = read_model(opened, limits, backend).nodes
    return decide_joining(
        opened,
        backend=backend,
        engine=engine_name(),
        rules=rules,
        files=[stamp.path for stamp in stamps],
        batched=batched,
        batch_axes=named,
        measure=None if measure is None else lambda: measure(nodes),
        settings=settings,
        limits=limits,
    )


def _declared(joining: Joining, model: Model, axes: Axes | None, backend: str) -> Joining:
    """Return the axes for `batched = true`: those that the user names, else axis 0 everywhere."""
    if axes is None:
        shown = ", ".join(f"{spec.name} {spec}" for spec in (*model.inputs, *model.outputs))
        raise hami.ConfigError(
            f"{backend}: batched = true needs the same axis 0 in all inputs and outputs, got {shown}; "
            "name other axes with batch_axes"
        )
    return replace(
        joining,
        joins=True,
        source="declared",
        input_axes={spec.name: axes.get(spec.name) for spec in model.inputs},
        output_axes={spec.name: axes.get(spec.name) for spec in model.outputs},
    )


def _measure(model: Model, named: Axes, nodes: int) -> Measurement:
    """Run rows alone and together, along the first axis for which that gives equal results.

    Inputs without rows are not tested unless the user names them: they may be axes, sizes or thresholds, and a test
    cannot try all of their values.
    """
    found = Measurement("unknown", {}, {}, "no axis of the inputs looks like a batch", None)
    for axes in candidate_axes(model.inputs, model.outputs, named):
        shared = [name for name, axis in axes.items() if axis is None]
        if shared and not named:
            why = f"a test cannot try all values of {', '.join(shared)}, which the rows share"
            found = Measurement("unknown", {}, {}, why, None) if found.verdict == "unknown" else found
        elif len(shared) < len(axes):
            measured = measure_along(axes, model, named, nodes)
            if measured.verdict == "independent":
                return measured
            found = measured if found.verdict == "unknown" else found
    return found


def measure_along(axes: Axes, model: Model, named: Axes, nodes: int, run: Run | None = None) -> Measurement:
    """Run rows alone and together along these axes of the inputs, with `run` in place of that of the model."""
    output_axes = {spec.name: named.get(spec.name) for spec in model.outputs} if named else None
    test = compare_rows(
        run or model.run,
        [row_input(spec, axes[spec.name]) for spec in model.inputs],
        [spec.name for spec in model.outputs],
        nodes=nodes,
        output_axes=output_axes,
    )
    largest = test.largest.relative if test.largest else None
    without_rows = [name for name, axis in test.output_axes.items() if axis is None]
    if test.verdict == "equal" and without_rows and not named:
        return Measurement("unknown", {}, {}, f"the output {', '.join(without_rows)} has no axis of rows", largest)
    if test.verdict == "not run":
        return Measurement("unknown", {}, {}, test.why, largest)
    return Measurement("independent" if test.verdict == "equal" else "mixes", axes, test.output_axes, test.why, largest)


def row_input(spec: TensorSpec, axis: int | None) -> RowInput:
    """Return an input for compare_rows."""
    assert spec.dtype is not None
    shape = tuple(size if size is not None else name for size, name in zip(spec.shape, spec.axis_names, strict=True))
    return RowInput(spec.name, spec.dtype, shape, axis)
