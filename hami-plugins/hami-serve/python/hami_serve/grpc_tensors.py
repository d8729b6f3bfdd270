"""Inference requests and answers as messages of gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hami_serve.datatypes import (
    DATATYPES,
    Array,
    array_of_bytes,
    array_of_json,
    as_bytes,
    bytes_of_array,
    checked_datatype,
    checked_shape,
)
from hami_serve.errors import BadRequest, short
from hami_serve.grpc_messages import message
from hami_serve.inference import MAX_TENSORS, Inference, Output
from hami_serve.model import Model

CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
Response = message("ModelInferResponse")


def parse_request(request: Any) -> Inference:
    """Return the request of a message."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise BadRequest(
            f"raw_input_contents has {len(raw)} entries for {len(request.inputs)} inputs; give one for each"
        )
    if len(request.inputs) > MAX_TENSORS:
        raise BadRequest(f"a request has at most {MAX_TENSORS} inputs, got {len(request.inputs)}")
    inputs: dict[str, Array] = {}
    for index, entry in enumerate(request.inputs):
        if not entry.name or entry.name in inputs:
            what = "every input has a name" if not entry.name else f'two inputs have the name "{short(entry.name)}"'
            raise BadRequest(what)
        name = short(entry.name)
        datatype = checked_datatype(name, entry.datatype)
        shape = checked_shape(name, list(entry.shape))
        if "shared_memory_region" in entry.parameters:
            raise BadRequest("this server has no shared memory; send the tensor in the request")
        inputs[entry.name] = (
            array_of_bytes(name, datatype, shape, memoryview(raw[index]))
            if raw
            else array_of_contents(name, datatype, shape, entry.contents)
        )
    return Inference(
        inputs=inputs,
        parameters={key: _value(parameter) for key, parameter in request.parameters.items()},
        outputs=tuple(dict.fromkeys(output.name for output in request.outputs)),
        id=request.id,
    )


def array_of_contents(name: str, datatype: str, shape: tuple[int, ...], contents: Any) -> Array:
    if datatype not in CONTENTS:
        raise BadRequest(f'input "{name}" is {datatype}, which is sent in raw_input_contents')
    values = list(getattr(contents, CONTENTS[datatype]))
    if datatype != "BYTES":
        return array_of_json(name, datatype, shape, values)
    array = np.empty(len(values), object)
    array[:] = values
    if array.size != int(np.prod(shape, dtype=object)):
        raise BadRequest(f'input "{name}" has {array.size} elements; its shape {short(str(list(shape)))} has others')
    return array.reshape(shape)


def _value(parameter: Any) -> Any:
    choice = parameter.WhichOneof("parameter_choice")
    return getattr(parameter, choice) if choice else None


def render_answer(model: Model, request: Any, outputs: Sequence[Output]) -> Any:
    """Return the message of an answer: with raw contents if the request has them, or typed contents do not exist."""
    answer = Response(model_name=model.handle.component, model_version=model.handle.version, id=request.id)
    raw = bool(request.raw_input_contents) or any(output.datatype not in CONTENTS for output in outputs)
    for output in outputs:
        entry = answer.outputs.add(name=output.name, datatype=output.datatype, shape=output.array.shape)
        if raw:
            answer.raw_output_contents.append(bytes(bytes_of_array(output.datatype, output.array)))
        else:
            values = output.array.reshape(-1)
            typed = (
                map(as_bytes, values)
                if output.datatype == "BYTES"
                else values.astype(DATATYPES[output.datatype][0]).tolist()
            )
            getattr(entry.contents, CONTENTS[output.datatype]).extend(typed)
    return answer
