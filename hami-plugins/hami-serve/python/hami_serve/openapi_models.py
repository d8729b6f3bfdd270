"""The paths of the models of a server in its OpenAPI document: plain JSON, with the schema of each input and output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hami_serve.datatypes import DATATYPES
from hami_serve.model import Model, TensorSpec

Json = dict[str, Any]
FILE: Json = {"type": "object", "required": ["base64"], "properties": {"base64": {"type": "string"}}}
NUMBERS = {"b": "boolean", "i": "integer", "u": "integer", "f": "number"}


def plain_operation(summary: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], errors: Json) -> Json:
    """Return the operation of a path that takes plain JSON; without declared inputs, it takes any value."""
    content: Json = {"application/json": {"schema": _named(inputs)}}
    if inputs:
        content["multipart/form-data"] = {"schema": _form(inputs)}
    else:
        content["multipart/form-data"] = {"schema": {"type": "object"}}
    if len(inputs) < 2:
        takes_text = not inputs or inputs[0].datatype in ("", "BYTES")
        content |= {kind: {} for kind in (("image/*", "text/plain") if takes_text else ())}
        content["application/octet-stream"] = {}
    answer: Json = {"application/json": {"schema": _named(outputs)}}
    if len(outputs) < 2 and (not outputs or outputs[0].datatype in ("", "BYTES")):
        answer |= {"image/*": {}, "text/plain": {}, "application/octet-stream": {}}
    return {
        "summary": summary,
        "parameters": [],
        "requestBody": {"required": True, "content": content},
        "responses": {"200": {"description": "The answer.", "content": answer}, **errors},
    }


def unique(models: Iterable[Model]) -> list[Model]:
    """Return the first usable version of each component, in the order of their names."""
    found: dict[str, Model] = {}
    for model in models:
        if model.usable:
            found.setdefault(model.handle.component, model)
    return [found[name] for name in sorted(found)]


def _named(specs: Sequence[TensorSpec]) -> Json:
    """Return the schema of an object with each tensor by its name; any value if none is declared."""
    if not specs:
        return {}
    properties = {spec.name: schema_of(spec) for spec in specs}
    return {"type": "object", "required": list(properties), "properties": properties}


def _form(specs: Sequence[TensorSpec]) -> Json:
    of_file = {"type": "string", "contentMediaType": "application/octet-stream"}
    properties = {
        spec.name: of_file if spec.datatype in ("", "BYTES") else {"type": "string", "description": "JSON"}
        for spec in specs
    }
    return {"type": "object", "required": list(properties), "properties": properties}


def schema_of(spec: TensorSpec) -> Json:
    """Return the schema of a tensor as nested lists: one for each axis, with its size if that is declared."""
    schema = _element(spec.datatype)
    for size in reversed(spec.shape):
        schema = {"type": "array", "items": schema, **({"minItems": size, "maxItems": size} if size >= 0 else {})}
    return {**schema, "description": f"{spec.datatype or 'any'} {list(spec.shape)}"}


def _element(datatype: str) -> Json:
    dtype = DATATYPES[datatype][0] if datatype else np.dtype(object)
    kind = NUMBERS.get(dtype.kind)
    if kind is None:
        return {"anyOf": [{"type": "string"}, FILE]}
    if kind == "integer":
        limits: Any = np.iinfo(dtype.name)
        return {"type": kind, "minimum": int(limits.min), "maximum": int(limits.max)}
    return {"type": [kind, "null"]} if kind == "number" else {"type": kind}
