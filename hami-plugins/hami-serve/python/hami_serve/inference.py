"""An inference request of the protocol, independent of HTTP and gRPC: to a request of a pipe, and back to tensors."""

from __future__ import annotations

import json
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import hami
import numpy as np

from hami_serve.building import RESERVED, request_of
from hami_serve.classification import classified
from hami_serve.datatypes import STEP, Array, datatype_of, elements_as
from hami_serve.errors import BadRequest, ModelFailed, RowFailed, short, text_of
from hami_serve.failures import of_load, of_model, of_result
from hami_serve.http_body import SHORT, off_loop
from hami_serve.model import Model, TensorSpec
from hami_serve.rounder import AllRounder
from hami_serve.shared_memory import Place

MAX_MOMENT = 1e12  # of a deadline, in seconds: a moment in milliseconds is out of range
LONG_TEXT = 1 << 18  # bytes of texts that are decoded on the loop
MAX_TENSORS = 1024  # inputs or outputs of a request
MAX_ROWS = 2048  # of a request that is split into its rows; also of /v1/embeddings of OpenAI
SHORT_ROWS = 64  # whose results are joined on the loop, about 10 µs each
OWN_PARAMETERS = {"timeout", "deadline", "priority", "binary_data_output"} | {
    *("sequence_id", "sequence_start", "sequence_end")
}
TRITON_PARAMETERS = "triton_"  # a prefix that Triton reserves
LONG_LIST = 1 << 10  # elements of a result: texts, or values that become JSON, about a microsecond each
END = object()  # after the last part of an answer


@dataclass
class Inference:
    """A request: tensors by name, parameters, and the names of the outputs (empty: all)."""

    inputs: dict[str, Array]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    id: str = ""
    classes: Mapping[str, int] = field(default_factory=dict)  # how many classes are wanted of which outputs
    places: Mapping[str, Place] = field(default_factory=dict)  # of outputs in shared memory


@dataclass(frozen=True)
class Output:
    """A tensor of an answer."""

    name: str
    datatype: str
    array: Array


@dataclass
class Call:
    """A request with the model that it asks for, the keys of the request of the pipe, and its timeout in seconds."""

    inference: Inference
    component: str
    version: str | None
    keys: dict[str, Any]
    timeout: float | None
    inputs: dict[str, Array]  # that become keys when the model is known, which takes text or bytes
    is_text: bool = True  # what elements of BYTES are if the model does not say it
    drawn: str | None = None  # the version whose inputs the request was read for
    requests: list[dict[str, Any]] | None = None  # of a model that takes one row for each


class Bound(NamedTuple):
    """The keys of a request of a pipe, and how many rows it has."""

    keys: dict[str, Any]
    rows: int
    inputs: dict[str, Array] | None = None  # of a model that takes one row: each is a request


@dataclass(frozen=True)
class Part:
    """A part of an answer. The last one has no outputs if the model returns nothing after its parts."""

    model: Model
    outputs: list[Output]
    final: bool


async def run(rounder: AllRounder, call: Call) -> tuple[Model, list[Output]]:
    """Run a request; return the model that ran it, and the outputs."""
    model, left = await _acquired(rounder, call)
    if call.requests is not None:
        return model, await _outputs_of_rows(rounder, model, call.requests, left, call.inference)
    with of_model():
        request = await rounder.acall_model(model, call.keys, left)
    rounder.registry.count_rows(model, rows_of(model, call.inference.inputs))
    return model, await outputs_on_loop(model, request, call.inference)


async def _outputs_of_rows(
    rounder: AllRounder, model: Model, requests: list[dict[str, Any]], timeout: float | None, inference: Inference
) -> list[Output]:
    await _run_rows(rounder, model, requests, timeout)
    if len(requests) > SHORT_ROWS:
        return await off_loop(_joined, model, requests, inference)
    return _joined(model, requests, inference)


async def _run_rows(rounder: AllRounder, model: Model, requests: list[dict[str, Any]], timeout: float | None) -> None:
    """Run the requests of rows, and release the model. The error of the first that fails names its row."""
    errors = await rounder.acall_rows(model, requests, timeout)
    for row, error in enumerate(errors):
        if error is not None and len(requests) > 1:
            raise RowFailed(error, row, len(requests)) from error
        if error is not None:
            raise error


def requests_of_rows(model: Model, inputs: Mapping[str, Array], keys: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a request for each row of the declared input of a model that takes one row.

    All of them have the keys, and those of the other inputs: an element, or an array if it has several.
    """
    (name,) = (spec.name for spec in model.inputs)
    array = inputs[name]
    if not 1 <= len(array) <= MAX_ROWS:
        raise BadRequest(f'input "{name}" must have from 1 to {MAX_ROWS} rows, got {len(array)}')
    if len(array) > 1 and "req_id" in keys:
        raise BadRequest(f'a request of a sequence takes one row of the input "{name}", got {len(array)}')
    others = {key: each.item() if each.size == 1 else each for key, each in inputs.items() if key != name}
    return [{**others, **keys, **request_of({name: array[row : row + 1]})} for row in range(len(array))]


def _joined(model: Model, requests: Iterable[Mapping[str, Any]], inference: Inference) -> list[Output]:
    """Return the outputs of all rows, which have one more axis than those of a row."""
    rows = [outputs_of(model, request, inference) for request in requests]
    if len({tuple((each.name, each.datatype, each.array.shape) for each in row) for row in rows}) > 1:
        raise ModelFailed("the rows of the request have outputs of different shapes; send each row as a request")
    return [
        Output(parts[0].name, parts[0].datatype, np.stack([each.array for each in parts]))
        for parts in zip(*rows, strict=True)
    ]


async def run_bound(
    rounder: AllRounder,
    component: str,
    version: str | None,
    timeout: float | None,
    bind: Callable[[Model], Awaitable[Bound]],
) -> tuple[Model, dict[str, Any]]:
    """Run a request whose keys depend on the model that runs it; return that model, and the completed request."""
    with of_load(component):
        model, left = await rounder.acquire_async(component, version, timeout)
    started = time.perf_counter()
    try:
        bound = await bind(model)
        requests = None if bound.inputs is None else requests_of_rows(model, bound.inputs, bound.keys)
    except BaseException as error:
        rounder.registry.release(model, started, error)
        raise
    if requests is not None:
        await _run_rows(rounder, model, requests, left)
        return model, {"result": [each.get("result") for each in requests]}
    with of_model():
        request = await rounder.acall_model(model, bound.keys, left)
    rounder.registry.count_rows(model, bound.rows)
    return model, request


async def stream(rounder: AllRounder, call: Call) -> AsyncGenerator[Part, None]:
    """Run a request, and yield what its model delivers; at last its result, unless that is None.

    A model that delivers no parts has one part, which is final: its result, also if it is None. Only a model that is
    declared as decoupled may deliver nothing.
    """
    inference = call.inference
    model, left = await _acquired(rounder, call)
    rows = call.requests
    if rows is not None and len(rows) > 1:
        yield Part(model, await _outputs_of_rows(rounder, model, rows, left, inference), final=True)
        return
    keys = call.keys if rows is None else rows[0]

    async def outputs(request: Mapping[str, Any]) -> list[Output]:
        if rows is None:
            return await outputs_on_loop(model, request, inference)
        return _joined(model, [request], inference)

    may_be_empty = model.version.decoupled
    async with aclosing(rounder.astream_model(model, keys, left)) as parts:
        while True:
            with of_model():
                part = await anext(parts, END)
            if part is END:
                break
            may_be_empty = True
            yield Part(model, await outputs({"result": part}), final=False)
    rounder.registry.count_rows(model, rows_of(model, inference.inputs))
    ended = may_be_empty and keys.get("result") is None
    yield Part(model, [] if ended else await outputs(keys), final=True)


async def outputs_on_loop(model: Model, request: Mapping[str, Any], inference: Inference) -> list[Output]:
    """Return the outputs of a completed request. The loop neither converts long lists nor ranks many classes."""
    if _has_long_list(request) or (any(inference.classes.values()) and _is_large(request)):
        return await off_loop(outputs_of, model, request, inference)
    return outputs_of(model, request, inference)


def _has_long_list(request: Mapping[str, Any]) -> bool:
    """Return whether the result is, or has, a long list that becomes a tensor or JSON."""
    result = request.get("result")
    values = result.values() if type(result) is dict else (result,)
    return any(isinstance(value, (list, tuple, dict)) and len(value) > LONG_LIST for value in values)


def _is_large(request: Mapping[str, Any]) -> bool:
    result = request.get("result")
    values = [*result.values()] if isinstance(result, dict) else [result]
    return any(math.prod(getattr(value, "shape", ())) > SHORT for value in values)


async def _acquired(rounder: AllRounder, call: Call) -> tuple[Model, float | None]:
    """Return a model for one request, whose inputs fit it, and the rest of its timeout."""
    with of_load(call.component):
        model, left = await rounder.acquire_async(call.component, call.version, call.timeout, call.drawn)
    try:
        if model.inputs and call.inference.inputs:
            check_inputs(model, call.inference.inputs)
        if call.inputs:
            taken = await _taken(model, call)
            if model.takes_rows:
                call.requests = requests_of_rows(model, taken, call.keys)
            else:
                call.keys |= request_of(taken)
    except BaseException as error:
        rounder.registry.release(model, time.perf_counter(), error)
        raise
    return model, left


async def _taken(model: Model, call: Call) -> dict[str, Array]:
    """Return the inputs of a request as the model takes them. The loop does not decode long texts."""
    texts = [array for array in call.inputs.values() if array.dtype == object]
    if any(array.size > STEP or sum(map(len, array.flat)) > LONG_TEXT for array in texts):
        return await off_loop(as_taken, model, call.inputs, call.is_text)
    return as_taken(model, call.inputs, call.is_text)


def as_taken(model: Model, inputs: dict[str, Array], is_text: bool | None) -> dict[str, Array]:
    """Return inputs with the elements of BYTES as the model takes them. `is_text`: if it does not say how.

    Raises:
        BadRequest: The model takes text, and an element is not UTF-8.
    """
    found = dict(inputs)
    for name, array in inputs.items():
        if array.dtype == object:
            taken = model.takes_text(name)
            found[name] = elements_as(f'input "{short(name)}"', array, is_text if taken is None else taken)
    return found


def call_of(inference: Inference, component: str, version: str | None) -> Call:
    """Return the call for a request with tensors."""
    if not inference.inputs:
        raise BadRequest("the request has no inputs; give at least one")
    keys: dict[str, Any] = {}
    timeout = apply_parameters(keys, inference.parameters)
    return Call(inference, component, version, keys, timeout, inference.inputs)


def apply_parameters(keys: dict[str, Any], parameters: Mapping[str, Any]) -> float | None:
    """Set the keys for the parameters of a request, and return its timeout in seconds.

    `timeout` is in microseconds, 0 for none, as in Triton. `deadline` is a moment of time.time(). Parameters that this
    server does not know are passed on under the key `parameters`.
    """
    if not parameters:
        return None
    timeout = _int(parameters, "timeout", 0, 2**63)
    if priority := _int(parameters, "priority", 0, 255):
        keys["priority"] = priority
    sequence = parameters.get("sequence_id", 0)
    if sequence not in (0, ""):
        is_id = isinstance(sequence, str) or (type(sequence) is int and abs(sequence) < 2**64)
        if not is_id:
            raise BadRequest(f"sequence_id is an int of 64 bits or a string, got {short(sequence)}")
        keys["req_id"] = sequence
        keys["sequence_start"] = bool(parameters.get("sequence_start", False))
        keys["finish"] = bool(parameters.get("sequence_end", False))
    others = {
        key: value
        for key, value in parameters.items()
        if key not in OWN_PARAMETERS and not key.startswith(TRITON_PARAMETERS)
    }
    if others:
        keys["parameters"] = others
    return with_deadline(timeout / 1e6 if timeout else None, parameters.get("deadline"))


def with_deadline(timeout: float | None, deadline: Any) -> float | None:
    """Return the timeout in seconds of a request that also has a deadline, a moment of time.time() or None.

    Raises:
        BadRequest: The deadline is not a number.
        DeadlineExceeded: The deadline has passed.
    """
    if deadline is None:
        return timeout
    is_number = isinstance(deadline, (int, float)) and not isinstance(deadline, bool)
    if not is_number or not -MAX_MOMENT <= deadline <= MAX_MOMENT:  # which NaN is not either
        raise BadRequest(f"the deadline of a request is in seconds since 1970, got {short(deadline)}")
    left = float(deadline) - time.time()
    if left <= 0:
        raise hami.DeadlineExceeded(f"the request came {-left:.3f} s after its deadline; compare the clocks")
    return left if timeout is None else min(timeout, left)


def _int(parameters: Mapping[str, Any], key: str, low: int, high: int) -> int:
    value = parameters.get(key, 0)
    if isinstance(value, str) and value.isdecimal():
        value = int(value[:20])
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadRequest(f"the parameter {key} is an int from {low} to {high}, got {short(value)}")
    return value


def check_inputs(model: Model, inputs: Mapping[str, Array]) -> None:
    """Check inputs against those of the model. Without a declaration, the engine checks and converts their values."""
    specs = {spec.name: spec for spec in model.inputs}
    name = f'model "{model.handle.component}"'
    if missing := [each for each in specs if each not in inputs]:
        given = ", ".join(f'"{short(each)}"' for each in inputs)
        raise BadRequest(f'{name} needs the input "{missing[0]}", which the request does not have; it has {given}')
    for key, array in inputs.items():
        spec = specs.get(key)
        if spec is None:
            if model.takes_keys and key not in RESERVED:
                continue
            raise BadRequest(f'{name} has no input "{short(key)}"; inputs: {", ".join(specs)}')
        if not model.version.inputs and not model.takes_rows:
            continue
        datatype = datatype_of(array)
        if spec.datatype and datatype != ("FP32" if spec.datatype == "BF16" else spec.datatype):
            raise BadRequest(f'input "{key}" of {name} is {spec.datatype}, got {datatype}')
        fits = len(array.shape) == len(spec.shape) and all(
            wanted in (-1, size) for wanted, size in zip(spec.shape, array.shape, strict=True)
        )
        if spec.datatype and not fits:
            raise BadRequest(f'input "{key}" of {name} has the shape {list(spec.shape)}, got {list(array.shape)}')


def rows_of(model: Model, inputs: Mapping[str, Array]) -> int:
    """Return the rows of a request: the length of axis 0 of its inputs, if the model takes any number of rows."""
    specs = {spec.name: spec for spec in model.inputs}
    lengths = set()
    for name, array in inputs.items():
        shape = specs[name].shape if name in specs else ()
        lengths.add(array.shape[0] if shape[:1] == (-1,) and array.ndim == len(shape) else 1)
    return lengths.pop() if len(lengths) == 1 else 1


def outputs_of(model: Model, request: Mapping[str, Any], inference: Inference) -> list[Output]:
    """Return the outputs of a completed request: those that are wanted, else those of the model, else the result.

    Raises:
        BadRequest: The model has no such output.
        ModelFailed: A value has no form in the protocol, or its conversion has failed.
    """
    specs = {spec.name: spec for spec in model.outputs}
    with of_result():
        result = request.get("result")
        named = dict(result) if isinstance(result, dict) and _has_names(result) else {}
    names = inference.outputs or tuple(specs) or tuple(named) or ("result",)
    outputs = []
    for name in names:
        if name in named:
            value = named[name]
        elif name in request and (name in specs or name == "result"):
            value = request[name]
        elif len(specs) == 1 and name in specs:
            value = result
        else:
            known = ", ".join(specs or named or ("result",))
            raise BadRequest(f'model "{model.handle.component}" has no output "{short(name)}"; outputs: {known}')
        with of_result():
            output = output_of(name, value, specs.get(name) if model.version.outputs else None)
        if count := inference.classes.get(name, 0):
            labels = specs[name].labels if name in specs else ()
            output = Output(name, "BYTES", classified(name, output.array, count, labels))
        outputs.append(output)
    return outputs


def _has_names(result: dict[Any, Any]) -> bool:
    """Return whether the keys of a result are names of outputs.

    Raises:
        DataTypeError: One of them is not Unicode text.
    """
    if not result or not all(isinstance(key, str) for key in result):
        return False
    for key in result:
        try:
            key.encode()
        except UnicodeEncodeError:
            raise hami.DataTypeError(f'the name of an output is Unicode text, got "{short(key)}"') from None
    return True


def output_of(name: str, value: Any, spec: TensorSpec | None = None) -> Output:
    """Return a value of a request as a tensor.

    Text and bytes are BYTES of one element, numbers are tensors of one element, and what has no tensor form is JSON
    text.
    """
    array, datatype = _array(value)
    if spec is not None and spec.datatype and spec.datatype != datatype:
        if spec.datatype == "BF16" and array.dtype.kind == "f":
            array = array.astype(np.float32)
        else:
            raise hami.DataTypeError(
                f'output "{name}" is declared as {spec.datatype}, and the model returned {datatype}'
            )
        datatype = spec.datatype
    return Output(name, datatype, array)


def _array(value: Any) -> tuple[Array, str]:
    if isinstance(value, (bytes, bytearray, str)):
        return _bytes([bytes(value) if isinstance(value, bytearray) else value]), "BYTES"
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        if not isinstance(value, hami.Tensor) and hasattr(value, "cpu"):
            value = value.detach().cpu() if hasattr(value, "detach") else value.cpu()
        if str(value.dtype).endswith("bfloat16"):
            return np.asarray(value.tolist(), np.float32).reshape(tuple(value.shape)), "BF16"
        value = hami.to_numpy(value)
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.atleast_1d(np.asarray(value)) if isinstance(value, np.generic) else _unmasked(value)
        if datatype := datatype_of(array):
            return array, datatype
        raise hami.NoResult(f"the protocol has no datatype for an array of {array.dtype}")
    if isinstance(value, (bool, int, float)):
        return _array(np.asarray([value]))
    if isinstance(value, (list, tuple)) and value:
        if all(isinstance(each, (str, bytes)) for each in value):
            return _bytes(value), "BYTES"
        try:
            array = np.asarray(value)
        except ValueError:
            array = np.empty(0, object)
        if array.dtype.kind in "biuf":
            return array, datatype_of(array) or "FP64"
    try:
        return _bytes([json.dumps(value, ensure_ascii=False, default=_plain)]), "BYTES"
    except (TypeError, ValueError, RecursionError) as error:
        raise hami.DataTypeError(
            f"a result of type {type(value).__name__} has no form in the protocol: {text_of(error)}"
        ) from error


def _unmasked(array: Array) -> Array:
    """Return an array without its mask, which the protocol does not have."""
    if np.ma.is_masked(array):
        raise hami.DataTypeError("the protocol has no form for masked elements; give them a value with array.filled(…)")
    return np.asarray(array)


def _bytes(values: Iterable[Any]) -> Array:
    found = list(values)
    array = np.empty(len(found), object)
    array[:] = found
    return array


def _plain(value: Any) -> Any:
    """Return a value inside a structure in a form that JSON has."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    raise TypeError(f"{type(value).__name__} is neither a number, text, list nor dict")
