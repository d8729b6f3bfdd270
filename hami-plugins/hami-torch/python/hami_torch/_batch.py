"""Run a batch of requests through a program: equal shapes together, and a failing request without its neighbors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import hami
from hami.batching import fail_request, joined_rows
from hami_model_check.row_watch import RowWatch

from hami_torch._program import InputSpec, first_line
from hami_torch._rows import concatenated, own_rows
from hami_torch._tensor import (
    Structure,
    TensorBackend,
    as_tensor,
    dtype_name,
    map_tensors,
    named_parts,
    rows_of,
    show,
    size_of,
    structure_of,
    tensors_of,
)
from hami_torch._torch import torch
from hami_torch._types import Batch, Request


class RequestInput(NamedTuple):
    """The input tensors of one request."""

    tensors: list[torch.Tensor]
    rows: int
    structure: Structure
    is_row: bool  # the data have no batch axis, so the result has none either


class BatchInput(NamedTuple):
    """The input of one call of a program.

    For each input of the program, `columns` has the tensors to concatenate: one for each request, or one for all.
    `dtypes` has what the program takes, None where it is unknown.
    """

    columns: list[list[torch.Tensor]]
    structure: Structure
    dtypes: list[torch.dtype | None]
    is_watched: bool = False  # a row that is compared with what it got in its batch: it runs without CUDA graphs


Call = Callable[[BatchInput, int], Any]  # the int is the total number of rows


def read_request(
    item: Request,
    data: Any,
    check: Callable[[torch.Tensor], torch.Tensor],
    specs: Callable[[Structure], list[InputSpec] | None],
    accepts: Callable[[torch.dtype, InputSpec], bool],
) -> RequestInput:
    """Return the input of a request, `data`. Data without the batch axis is one row.

    `specs` returns what the program takes for data of a structure, None if that is unknown. Raises hami.Error if a
    tensor fails `check`, has the wrong number of rows, or has a dtype that is not accepted.
    """
    named = named_parts(data)
    if not named:
        raise hami.RequestError('TorchModel: "data" is empty; it must be a tensor, or a list or dict of tensors')
    tensors = {name: check(as_tensor(part, "TorchModel")) for name, part in named.items()}
    structure = structure_of(data)
    expected = specs(structure)
    is_row = expected is not None and all(
        tensor.ndim + 1 == len(spec.shape) for tensor, spec in zip(tensors.values(), expected, strict=True)
    )
    if is_row:
        tensors = {name: tensor[None] for name, tensor in tensors.items()}
    for tensor, spec in zip(tensors.values(), expected or (), strict=expected is not None):
        if not accepts(tensor.dtype, spec):
            raise hami.DataTypeError(
                f'TorchModel: input "{spec.name}" expects {dtype_name(spec.dtype)}, got {dtype_name(tensor.dtype)}, '
                f"which cannot be converted without loss; call .to(torch.{dtype_name(spec.dtype)}) on the data to "
                "accept the loss"
            )
    rows = _rows_of_request(item, tensors)
    return RequestInput(list(tensors.values()), rows, structure, is_row)


def _rows_of_request(item: Request, tensors: dict[str, torch.Tensor]) -> int:
    """Return the number of rows that all tensors have; raises RequestError if they or `request_size` differ."""
    if "request_size" in item:
        for name, tensor in tensors.items():
            rows_of(tensor, item, "TorchModel", name)
        return size_of(item)
    counts = {tensor.shape[0] if tensor.ndim else 0 for tensor in tensors.values()}
    if len(counts) > 1 or not all(tensor.ndim for tensor in tensors.values()):
        shown = ", ".join(f'"{name}" is {show(tensor)}' for name, tensor in tensors.items())
        raise hami.RequestError(f"TorchModel: {shown}; all inputs must have the same number of rows along axis 0")
    return counts.pop()


def kind_of(request: RequestInput) -> tuple[Any, ...]:
    """Return what requests that run in one call have in common: structure, shapes without axis 0, and dtypes."""
    return request.structure, *((tensor.shape[1:], tensor.dtype) for tensor in request.tensors)


def run_group(
    items: Batch,
    requests: list[RequestInput],
    call: Call,
    backend: TensorBackend,
    dtypes: Callable[[Structure], list[torch.dtype | None]],
    watch: RowWatch | None = None,
) -> None:
    """Call the program once for requests of one kind."""
    columns = [list(parts) for parts in zip(*(request.tensors for request in requests), strict=True)]
    rows = [request.rows for request in requests]
    structure = requests[0].structure
    run_together(items, BatchInput(columns, structure, dtypes(structure)), rows, call, backend, watch)
    for item, request in zip(items, requests, strict=True):
        if request.is_row and "result" in item:
            backend.give(item, map_tensors(item["result"], _without_batch_axis))


def _without_batch_axis(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[0] if tensor.shape[:1] == (1,) else tensor


def run_together(
    items: Batch,
    inputs: BatchInput,
    rows: list[int],
    call: Call,
    backend: TensorBackend,
    watch: RowWatch | None = None,
) -> None:
    """Call the program once for all requests and give each its rows of the output; `rows` is the count of each.

    Each request runs alone if the call fails, if an output has not one row per input row, or if the watch, which runs a
    row of some batches again, finds that it depends on its neighbours. The same holds for the requests that one request
    of CatSplit represents.
    """
    total = sum(rows)
    represented = joined_rows(items[0]) if len(items) == 1 and watch is not None else []
    if represented and watch is not None and not watch.joins:
        call = _one_by_one(call, represented)
    samples = [parts[0] for parts in inputs.columns]
    before = tensor_versions(samples)
    try:
        output = _checked(call(inputs, total))
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        if len(items) == 1:
            fail_request(items[0], _as_request_error(error, samples))
        elif tensor_versions(samples) == before:
            _run_separately(items, inputs, rows, call, backend)
        else:
            _fail_modified(items, first_line(error))
        return
    if len(items) == 1:
        is_due = bool(represented) and watch is not None and watch.joins and watch.is_due()
        if is_due and watch is not None and not _is_the_same_alone(inputs, output, total, call, backend, watch):
            run_together(items, inputs, rows, call, backend, watch)
        else:
            backend.give(items[0], output)
    elif any(tensor.ndim == 0 or tensor.shape[0] != total for tensor in tensors_of(output)):
        if tensor_versions(samples) == before:
            _run_separately(items, inputs, rows, call, backend)
        else:
            _fail_modified(items, "an output does not have one row for each input row")
    elif watch is not None and watch.is_due() and not _is_the_same_alone(inputs, output, total, call, backend, watch):
        _run_separately(items, inputs, rows, call, backend)
    elif isinstance(output, torch.Tensor):
        backend.give_rows(items, output, rows)
    else:
        parts = map_tensors(output, lambda tensor: own_rows(tensor, rows))
        for index, item in enumerate(items):
            backend.give(item, _part(parts, index))


def _one_by_one(call: Call, rows: list[int]) -> Call:
    """Return what calls the program for each of the requests that one request represents, and joins the outputs."""

    def run(inputs: BatchInput, total: int) -> Any:
        columns = [torch.split(concatenated(parts), rows) for parts in inputs.columns]
        parts = [
            call(BatchInput([[part] for part in own], inputs.structure, inputs.dtypes), count)
            for own, count in zip(zip(*columns, strict=True), rows, strict=True)
        ]
        outputs = zip(*map(tensors_of, parts), strict=True)
        return map_tensors(parts[0], lambda _: torch.cat(next(outputs)))

    return run


def _run_separately(items: Batch, inputs: BatchInput, rows: list[int], call: Call, backend: TensorBackend) -> None:
    """Run each request alone, so that only a request that causes the failure fails."""
    columns = [parts if len(parts) == len(items) else torch.split(parts[0], rows) for parts in inputs.columns]
    for item, parts, count in zip(items, zip(*columns, strict=True), rows, strict=True):
        run_together(
            [item], BatchInput([[part] for part in parts], inputs.structure, inputs.dtypes), [count], call, backend
        )


def _is_the_same_alone(
    inputs: BatchInput, output: Any, total: int, call: Call, backend: TensorBackend, watch: RowWatch
) -> bool:
    """Run the last row of a batch alone, and return whether its requests may keep what they got in the batch."""
    backend.count("watched")
    row = BatchInput([[parts[-1][-1:]] for parts in inputs.columns], inputs.structure, inputs.dtypes, True)
    together = named_outputs(output)
    is_same = watch.compare(
        list(together),
        [as_array(part[-1:]) for part in together.values()],
        lambda: [as_array(part) for part in named_outputs(call(row, 1)).values()],
        rows=total,
    )
    if not is_same:
        backend.count("watch_differences")
    return is_same or watch.joins


def named_outputs(output: Any) -> dict[str, Any]:
    """Return the outputs of a program by name: the keys of a dict, else "result" or "result[0]", …"""
    if isinstance(output, Mapping):
        return dict(output)
    if isinstance(output, (list, tuple)):
        return {f"result[{index}]": part for index, part in enumerate(output)}
    return {"result": output}


WITHOUT_NUMPY = {torch.bfloat16, *(getattr(torch, name) for name in dir(torch) if name.startswith("float8"))}


def as_array(tensor: Any) -> Any:
    """Return a tensor as an array in CPU memory, in float32 if NumPy lacks its type; anything else unchanged."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype in WITHOUT_NUMPY else tensor).numpy()


def tensor_versions(tensors: list[torch.Tensor]) -> list[int]:
    """Return numbers that change when anything writes to the memory of these tensors."""
    return [0 if tensor.is_inference() else tensor._version for tensor in tensors]


def _fail_modified(items: Batch, reason: str) -> None:
    for item in items:
        item.fail(
            hami.RequestError(
                f"TorchModel: the model failed on a batch ({reason}), and its requests cannot be retried: the model "
                "modified its input for the first time. From now on it gets copies; change forward to work on a copy"
            )
        )


def _as_request_error(error: Exception, tensors: list[torch.Tensor]) -> hami.Error:
    if isinstance(error, hami.Error):
        return error
    given = ", ".join(map(show, tensors))
    failure = hami.RequestError(f"TorchModel: the model failed on {given}: {first_line(error)}")
    failure.__cause__ = error
    return failure


def _part(parts: Any, index: int) -> Any:
    """Return part `index` of each tensor that was split, in the structure of the output."""
    if isinstance(parts, dict):
        return {name: part[index] for name, part in parts.items()}
    return [part[index] for part in parts]


def _checked(output: Any) -> Any:
    """Return the output of a model; raises RequestError if it is not a tensor or a list or dict of tensors."""
    parts = output.values() if isinstance(output, dict) else output if isinstance(output, list) else [output]
    for part in parts:
        if not isinstance(part, torch.Tensor):
            raise hami.RequestError(
                f"TorchModel: the model must return a tensor, or a list or dict of tensors; got {type(part).__name__}"
            )
    return output
