"""open_joined: opens a model and finds out about its rows; a number of rows that is fixed at 1 is freed if safe."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import hami
from hami_model_check.findings import recall, remember
from hami_model_check.free_axis import find_fixed_ones
from hami_model_check.joining import Axes, Joining
from hami_model_check.row_test import Arrays
from hami_model_check.row_watch import shared_watch
from hami_model_check.rows import prove_rows

from hami_onnx._joining import engine_name, join_rows, measure_along, prove_ahead
from hami_onnx._model import Model
from hami_onnx._native import NativeSession
from hami_onnx._rows import Rows
from hami_onnx.session import find_files, open_native, open_session, read_model


def open_joined(
    model: str | os.PathLike[str],
    library: str | os.PathLike[str] | None,
    arguments: Mapping[str, Any],
    *,
    batched: bool | None,
    batch_axes: Sequence[str],
    rules: str | None,
    settings: object,
) -> Model:
    """Open a model, and find out whether its requests may be joined.

    An axis of the rows that the file fixes at 1 is left free if the proof does not object, one row has the same bits as
    before, and rows alone and together are equal. The finding is kept.

    Args:
        model, library, arguments: as for model_of; `arguments` have the limits and the name of the backend.
        batched, batch_axes, rules, settings: as for join_rows.

    Raises:
        hami.ConfigError: the model cannot be opened, or `batched` or `batch_axes` does not fit it.
    """
    limits, backend = arguments.get("limits", {}), str(arguments["backend"])
    path = os.path.abspath(model)
    ways: dict[str, Any] = {
        "path": path,
        "batched": batched,
        "batch_axes": batch_axes,
        "rules": rules,
        "settings": settings,
        "limits": limits,
        "backend": backend,
    }
    kept = _key(path, rules, sorted(batch_axes), settings, limits, backend) if batched is not False else None
    known = recall(**kept, reads=False) if kept else None
    if known is None:
        found = model_of(model, library, {**arguments, "meanwhile": prove_ahead(**ways)})
        join_rows(found, **ways)
        if kept is None or not found.joining.cure or not isinstance(found.session, NativeSession):
            return found
        known = recall(**kept)
        if known is None:
            known = _freed(found, model, library, arguments, ways)
            remember(finding=known, **kept)
        if not known["freed"]:
            return found
    elif not known["freed"]:
        found = model_of(model, library, {**arguments, "meanwhile": prove_ahead(**ways)})
        join_rows(found, **ways)
        return found
    opened = model_of(model, library, {**arguments, "freed": known["freed"]})
    _set_rows(opened, Joining(**known["joining"]), ways)
    return opened


def freed_joining(
    path: str,
    *,
    batch_axes: Sequence[str],
    rules: str | None,
    settings: object,
    limits: Mapping[str, int],
    backend: str,
    reads: bool = False,
) -> Joining | None:
    """Return what is kept about a model that open_joined has opened with a free axis, or None."""
    known = recall(**_key(path, rules, sorted(batch_axes), settings, limits, backend), reads=reads)
    return Joining(**known["joining"]) if known is not None and known["freed"] else None


def _key(
    path: str, rules: str | None, axes: list[str], settings: object, limits: Mapping[str, int], backend: str
) -> dict[str, Any]:
    """Return the arguments of `recall` for the finding of a model."""
    files = [stamp.path for stamp in find_files(path, limits, backend)[1]]
    return {"files": files, "engine": engine_name(), "settings": ["free axis", rules, axes, settings]}


def _freed(
    model: Model,
    path: str | os.PathLike[str],
    library: str | os.PathLike[str] | None,
    arguments: Mapping[str, Any],
    ways: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the finding: `freed`, the offsets of `find_fixed_ones`, and `joining`, what is known about the rows.

    `freed` is empty if the model does not run with a free axis, computes one row otherwise, or mixes rows.
    """
    nothing: dict[str, Any] = {"freed": [], "joining": {}}
    axes: dict[str, int | None] = dict.fromkeys((spec.name for spec in model.inputs), 0)
    if model.rows.joins:
        axes = dict(model.joining.input_axes)
    opened = find_files(ways["path"], ways["limits"], ways["backend"])[0]
    offsets = find_fixed_ones(opened, axes)
    if not offsets:
        return nothing
    verdict = "unknown"
    if ways["rules"] is not None:
        proof = prove_rows(
            opened,
            backend=ways["backend"],
            engine=ways["rules"],
            batch_axes=axes,
            freed=offsets,
            **ways["limits"],
        )
        verdict = proof.verdict
    if verdict == "mixes":
        return nothing
    try:
        free = model_of(path, library, {**arguments, "freed": offsets})
    except hami.Error:  # the fixed length is part of what the model computes
        return nothing
    named = dict(model.joining.output_axes) if ways["batch_axes"] else {}
    nodes = read_model(opened, ways["limits"], ways["backend"]).nodes
    measured = measure_along(axes, free, named, nodes, run=lambda arrays: _same_alone(arrays, model, free, axes))
    if measured.verdict != "independent":
        return nothing
    source = "proven" if verdict == "independent" else "measured"
    joining = Joining(
        True,
        source,  # type: ignore[arg-type]
        "independent",
        dict(measured.input_axes),
        dict(measured.output_axes),
        largest=measured.largest,
        tested=True,
        freed=True,
    )
    return {"freed": offsets, "joining": asdict(joining)}


def _same_alone(arrays: Arrays, fixed: Model, free: Model, axes: Axes) -> list[Any]:
    """Run the model with a free axis; one row must have the bits of the model as it is in the file."""
    results = free.run(arrays)
    given = zip(arrays, (axes[spec.name] for spec in free.inputs), strict=True)
    if all(axis is None or array.shape[axis] == 1 for array, axis in given):
        for one, other in zip(results, fixed.run(arrays), strict=True):
            if (one.dtype, one.shape) != (other.dtype, other.shape) or one.tobytes() != other.tobytes():
                raise hami.RequestError("one row has other bits with a free axis")
    return results


def _set_rows(model: Model, joining: Joining, ways: Mapping[str, Any]) -> None:
    path, limits, backend = ways["path"], ways["limits"], ways["backend"]
    model.joining = joining
    model.rows = Rows.of(joining, model.inputs, model.outputs, ways["batched"])
    model.watch = shared_watch(model.session, backend, path, nodes=read_model(path, limits, backend).nodes, stops=True)


def model_of(
    path: str | os.PathLike[str], library: str | os.PathLike[str] | None, arguments: Mapping[str, Any]
) -> Model:
    """Return a model whose joining is not decided; `arguments` are those of open_native."""
    native = open_native(path, library=library, **arguments)
    if native is not None and native.specs is not None:
        return Model(native, native.specs, native.run)
    if native is not None and native.settings.plugin_providers:
        raise hami.ConfigError(
            f"{arguments['backend']}: only the CPU takes strings, sequences, maps and small floats, as inputs or "
            f'outputs of "{path}"; write provider = "cpu"'
        )
    from hami_onnx._python_session import python_model

    of_session = {name: value for name, value in arguments.items() if name not in ("freed", "busy_threads")}
    return python_model(open_session(path, **of_session), arguments["backend"], arguments.get("memory", "arena"))
