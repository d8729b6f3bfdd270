"""Builds the pipe of a model, and runs its first requests before others can see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import hami
import hami.config
import numpy as np

from hami_serve import tracing
from hami_serve.datatypes import DATATYPE_OF_NAME, DATATYPES
from hami_serve.model import Model, TensorSpec
from hami_serve.source import misplaced

RESERVED = {  # keys of a request that the core, its containers or this server give a meaning
    *("result", "node_name", "request_size", "tensor_rows", "timeout", "deadline", "priority", "req_id", "state"),
    *("finish", "sequence_start", "context", "event", "parameters", "parts", "hami.visits"),
}
UNKNOWN: dict[str, Any] = {"inputs": [], "outputs": []}


def build(model: Model) -> None:
    """Build the pipe and warm it up. If that fails, no pipe is left."""
    version = model.version
    try:
        pipe = hami.pipe(version.source)
    except hami.ConfigError as error:
        if key := misplaced(version.source, error):
            raise hami.ConfigError(
                f'component "{model.handle.component}": "{key}" is a key of the component, and here it is a key of its '
                f'pipeline; write the pipeline as source = {{backend = "…"}}, and "{key}" beside source\n{error}'
            ) from None
        raise
    try:
        pipe.set_label(f"{model.handle.component} version {model.handle.version}")
        for _ in range(version.warmup):
            pipe(request_of({spec.name: _zeros(spec) for spec in version.inputs}))
        model.description = pipe.describe()
        _ask_plugins(model)
    except BaseException:
        pipe.close()
        raise
    model.pipe = tracing.traced(pipe, model.handle.component, model.handle.version)


def _ask_plugins(model: Model) -> None:
    """Take what is not declared from the plugins: inputs and outputs if the pipeline is nothing but an engine, or if it
    begins with a backend that takes texts."""
    model.data_type = hami.config.data_type(model.description)
    found = hami.config.signature(model.description) or UNKNOWN
    if of_texts := _signature_of_texts(model.description):
        model.takes_keys = not (model.inputs or model.outputs or model.version.decoupled)
        model.takes_rows = model.takes_keys and of_texts["inputs"][0]["shape"] == []
        found = of_texts if model.takes_keys else UNKNOWN
    if model.takes_rows:
        found = {key: [{**each, "shape": [-1, *each["shape"]]} for each in found[key]] for key in found}
    if not model.inputs:
        model.inputs = tuple(map(_spec, found["inputs"]))
    if not model.outputs:
        model.outputs = tuple(map(_spec, found["outputs"]))


def _signature_of_texts(description: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return inputs and outputs of a pipeline whose first backend takes one text, or several inputs of texts."""
    nodes = description["nodes"]
    later = {name for node in nodes.values() for name in node["next"]}
    first = [backend for name, node in nodes.items() if name not in later for backend in node["backends"]]
    last = [backend for node in nodes.values() if not node["next"] for backend in node["backends"]]
    inputs = _tensors_of(first, "inputs", 0)
    is_one_text = [each["shape"] for each in inputs] == [[]]
    if not (is_one_text or len(inputs) > 1) or any(each["dtype"] != "string" for each in inputs):
        return None
    return {"inputs": inputs, "outputs": _tensors_of(last, "outputs", -1)}


def _tensors_of(backends: Sequence[Mapping[str, Any]], key: str, place: int) -> list[dict[str, Any]]:
    """Return what a plugin says of a single backend; of a sequence, of its first (0) or last one (-1)."""
    if len(backends) != 1:
        return []
    (backend,) = backends
    while backend["class"] == "Sequential":
        backend = backend["children"][place]
    found = hami.config.signature({"nodes": {"": {"backends": [backend]}}})
    return found[key] if found else []


def _spec(tensor: dict[str, Any]) -> TensorSpec:
    if not tensor["dtype"]:  # a list or a map, whose form in the protocol is JSON text
        return TensorSpec(tensor["name"], "BYTES", (1,), is_text=True)
    if tensor["dtype"] == "string":
        return TensorSpec(tensor["name"], "BYTES", tuple(tensor["shape"]), is_text=True)
    return TensorSpec(tensor["name"], DATATYPE_OF_NAME.get(tensor["dtype"], ""), tuple(tensor["shape"]))


def request_of(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return a request with the inputs as keys, except those whose names have a meaning in a request.

    `data` is the only input; its only element if it is BYTES; of several inputs a dict by name. It is not
    the input that has this name if another one is not a key.
    """
    request = {name: value for name, value in inputs.items() if name not in RESERVED}
    if "data" not in request or len(request) < len(inputs):
        request["data"] = dict(inputs)
    if len(inputs) == 1:
        (value,) = inputs.values()
        is_text = isinstance(value, np.ndarray) and value.dtype == object and value.size == 1
        request["data"] = value.reshape(-1)[0] if is_text else value
    return request


def _zeros(spec: TensorSpec) -> np.ndarray[Any, Any]:
    shape = [max(size, 1) if size < 0 else size for size in spec.shape]
    if spec.datatype == "BYTES":
        array = np.empty(shape, object)
        array.fill("" if spec.is_text else b"")
        return array
    return np.zeros(shape, DATATYPES[spec.datatype or "FP32"][0])
