"""What `hami show` and `hami check` print about a model."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import Any

import hami
from hami_model_check.joining import Joining, decide_joining
from hami_model_check.onnx import OnnxLimits
from hami_model_check.row_test import BATCHES, RowTest, compare_rows, tolerance
from hami_model_check.signature import describe_onnx, onnx_signature

from hami_onnx._free_axis import freed_joining, open_joined
from hami_onnx._joining import engine_name, row_input
from hami_onnx._model import Model
from hami_onnx._native import NativeSession
from hami_onnx._plugin_providers import installed_providers
from hami_onnx._providers import available_providers, proof_rules
from hami_onnx._runtime import version
from hami_onnx.session import find_files, open_native, read_model

_BACKEND = "OnnxTensor"


def show_model(path: str) -> dict[str, Any]:
    """Return facts about a model: inputs, outputs, and whether requests are joined, how that is known, and along what.

    Raises:
        hami.ConfigError: the model cannot be opened.
    """
    arguments = {"backend": _BACKEND, "limits": {}}
    model = open_joined(path, None, arguments, batched=None, batch_axes=[], rules="onnx", settings=["cpu", [], []])
    joining = model.joining
    facts: dict[str, Any] = {
        "engine": f"onnxruntime {version()}",
        "runs in": _where(model),
        "inputs": [f"{spec.name}  {spec}" for spec in model.inputs],
        "optional inputs": [f"{spec.name}  {spec}" for spec in model.optional],
        "outputs": [f"{spec.name}  {spec}" for spec in model.outputs],
        **replace(joining, joins=model.rows.joins).facts(),
        "providers": ", ".join(available_providers()),
    }
    if not path.endswith(".ort"):
        facts |= describe_onnx(path, [stamp.path for stamp in find_files(path, {}, _BACKEND)[1][1:]])
    if model.rows.joins:
        facts["largest difference"] = _largest(model, read_model(path, {}, _BACKEND).nodes)
    return {name: value for name, value in facts.items() if value not in ("", [])}


def _where(model: Model) -> str:
    if isinstance(model.session, NativeSession):
        return "the native library"
    return "Python: a value of the model is not a tensor of numbers, such as a string, a sequence or a small float"


def _largest(model: Model, nodes: int) -> str:
    """Return by how much a row alone differs from the same row in batches, by running some."""
    test: RowTest = compare_rows(
        model.run,
        [row_input(spec, axis) for spec, axis in zip(model.inputs, model.rows.input_axes, strict=True)],
        [spec.name for spec in model.outputs],
        nodes=nodes,
        output_axes={spec.name: axis for spec, axis in zip(model.outputs, model.rows.output_axes, strict=True)},
    )
    if test.largest is None:
        return f"not measured: {test.why}"
    dtype = next((spec.dtype for spec in model.outputs if spec.dtype is not None), None)
    allowed = f", rounding explains {tolerance(dtype, nodes):.1e}" if dtype is not None else ""
    return f"{test.largest.relative:.1e} of the largest value, alone against batches of up to {max(BATCHES)}{allowed}"


def operators_by_provider(path: str) -> dict[str, str]:
    """Open a model on each provider that is a package of its own; return which operators run where, or why none do."""
    found = {}
    for provider in installed_providers():
        try:
            session = open_native(path, provider=provider.name, backend=_BACKEND)
        except hami.Error as error:
            text = str(error).splitlines()[0]
        else:
            assigned = session.assigned if session is not None else {}
            text = "; ".join(f"{name}: {_counted(kinds)}" for name, kinds in assigned.items()) or "not known"
        found[f"on {provider.name}"] = text
    return found or {"on the CPU": "all operators: no execution provider that is a package of its own is installed"}


def _counted(kinds: list[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).items())


def findings_of(params: dict[str, Any]) -> list[str]:
    """Return a sentence about the model of a configured backend, from the proof and the cache; nothing is loaded."""
    path = str(params.get("model") or "")
    if not os.path.isfile(path) or params.get("batched") is False:
        return []
    ways, provider = _ways(params), params.get("provider") or ["cpu"]
    name = os.path.basename(path)
    if freed := freed_joining(os.path.abspath(path), batch_axes=params.get("batch_axes") or [], **ways):
        return [freed.finding(name)]
    opened, stamps = find_files(os.path.abspath(path), ways["limits"], _BACKEND)
    joining: Joining = decide_joining(opened, engine=engine_name(), files=[stamp.path for stamp in stamps], **ways)
    if ways["rules"] is None and not joining.tested:
        return [f"{name}: a test decides whether requests are joined when {provider} has opened it"]
    if joining.verdict == "unknown" and not joining.tested and params.get("batched") is None:
        return [f'"{name}": a test decides when the model is opened, because {joining.reason}']
    return [joining.finding(name)]


def signature_of(params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the inputs and outputs of a configured backend, where an axis that its session leaves free is -1."""
    found = onnx_signature(params["model"])
    if found is None or params.get("batched") is False or not any(1 in port["shape"] for port in found["inputs"]):
        return found
    ways, axes = _ways(params), params.get("batch_axes") or []
    freed = freed_joining(os.path.abspath(params["model"]), batch_axes=axes, reads=True, **ways)
    if freed is not None:
        for ports, of_rows in ((found["inputs"], freed.input_axes), (found["outputs"], freed.output_axes)):
            for port in ports:
                axis = of_rows.get(port["name"])
                if axis is not None and axis < len(port["shape"]):
                    port["shape"][axis] = -1
    return found


def _ways(params: dict[str, Any]) -> dict[str, Any]:
    """Return under which circumstances a finding about the model of a configured backend was made."""
    provider = params.get("provider") or ["cpu"]
    settings = [
        provider if isinstance(provider, str) else ",".join(provider),
        params.get("provider_options") or [],
        params.get("custom_operators") or [],
    ]
    limits = {key: params[key] for key in OnnxLimits.__annotations__ if params.get(key) is not None}
    return {"rules": proof_rules(provider), "settings": settings, "limits": limits, "backend": _BACKEND}
