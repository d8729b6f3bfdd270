"""Requests of the generate extension: JSON without shapes; the answer as JSON, or in parts as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from hami_serve.datatypes import Array, array_of_json, json_of_array
from hami_serve.errors import BadRequest, short
from hami_serve.http_body import ClientLeft, UntilClientLeaves, off_loop
from hami_serve.http_tensors import id_of, is_long, long_data, parameters_of
from hami_serve.inference import MAX_TENSORS, Inference, Output
from hami_serve.json_steps import written
from hami_serve.model import Model, TensorSpec

DATATYPES_OF_JSON = {str: "BYTES", bool: "BOOL", int: "INT64", float: "FP64"}


def parse_generate(given: Mapping[str, Any], specs: Sequence[TensorSpec]) -> Inference:
    """Return the request of a JSON object.

    Its keys are the inputs of the model, `id` and `parameters`. If the model declares its inputs, other keys are
    parameters too. A value is a number, a text, or a flat list of them; it takes the shape that the model declares.
    """
    declared = {spec.name: spec for spec in specs}
    inputs: dict[str, Array] = {}
    parameters: dict[str, Any] = {}
    for key, value in given.items():
        if key == "id" or (key == "parameters" and key not in declared):
            continue
        if declared and key not in declared:
            parameters[key] = value
        else:
            inputs[key] = _array(key, value, declared.get(key))
    if len(inputs) > MAX_TENSORS:
        raise BadRequest(f"a request has at most {MAX_TENSORS} inputs, got {len(inputs)}")
    parameters |= parameters_of(given, "the request")
    return Inference(inputs=inputs, parameters=parameters, id=id_of(given))


def _array(name: str, value: Any, spec: TensorSpec | None) -> Array:
    values = value if isinstance(value, list) else [value]
    kinds = {type(each) for each in values}
    if not kinds <= DATATYPES_OF_JSON.keys():
        raise BadRequest(f'"{short(name)}" is a number, a text, true, false or a flat list of them, got {short(value)}')
    kind = float if kinds == {int, float} else next(iter(kinds)) if len(kinds) == 1 else str
    datatype = spec.datatype if spec and spec.datatype else DATATYPES_OF_JSON[kind]
    array = array_of_json(f'input "{short(name)}"', datatype, (len(values),), values)
    return array.reshape(fitting_shape(spec.shape, len(values))) if spec else array


def fitting_shape(declared: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the declared shape with sizes for `count` elements: the last variable size has them, the others are 1.

    If it cannot have so many elements, the shape is flat, and the check of the inputs says what was expected.
    """
    variable = [axis for axis, size in enumerate(declared) if size < 0]
    sizes = [max(size, 1) if size < 0 else size for size in declared]
    known = 1
    for size in sizes:
        known *= size
    if variable and known and count % known == 0:
        sizes[variable[-1]] = count // known
        return tuple(sizes)
    return tuple(sizes) if known == count else (count,)


async def generated(model: Model, inference: Inference, outputs: Sequence[Output]) -> bytes:
    """Return an answer; the loop does not make a long one."""
    if any(map(is_long, outputs)):
        return await off_loop(render_generated, model, inference, outputs)
    return render_generated(model, inference, outputs)


def render_generated(model: Model, inference: Inference, outputs: Sequence[Output]) -> bytes:
    """Return an answer: each output by its name, a single element without a list."""
    answer: dict[str, Any] = {"model_name": model.handle.component, "model_version": model.handle.version}
    if inference.id:
        answer["id"] = inference.id
    long: list[tuple[str, bytes]] = []
    for output in outputs:
        if is_long(output):
            data = long_data(output)
            long.append((output.name, data[1:-1] if output.array.size == 1 else data))
            continue
        values = json_of_array(output.name, output.datatype, output.array)
        answer[output.name] = values[0] if len(values) == 1 else values
    rest = written(answer)
    return rest[:-1] + b"".join(b",%b:%b" % (written(name), data) for name, data in long) + b"}"


def event(data: bytes) -> bytes:
    """Return a server-sent event. JSON has no line break that would end it."""
    return b"data: " + data + b"\n\n"


class EventStream(StreamingResponse):
    """Sends events as they come. It waits while the client is slow, and closes the events when the client leaves."""

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with aclosing(self._events), UntilClientLeaves(receive):
                await self.stream_response(send)
        except ClientLeft:
            pass
