"""Hand the CUDA graphs of a model to hami-cuda, which runs batches of its own tensors with them, without Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from hami_tensor import Device

from hami_torch._graphs import Graphs
from hami_torch._tensor import TensorBackend, dtype_name
from hami_torch._torch import torch, torch_untyped

if TYPE_CHECKING:
    from hami_cuda import captured
    from hami_cuda.captured import CapturedModel, Region
else:
    try:
        from hami_cuda import captured
    except ImportError:  # hami-cuda is optional
        captured = None

_DEFAULT_STREAM = 1  # in DLPack
_from_dlpack = torch_untyped._C._from_dlpack


def why_not(graphs: Graphs) -> str:
    """Return why hami-cuda cannot run these graphs; empty if it can."""
    if captured is None:
        return "hami-cuda is not installed"
    if not hasattr(torch_untyped.cuda.CUDAGraph, "raw_cuda_graph_exec"):
        return f"torch {torch.__version__} does not give the handle of a graph"
    outputs = [each.output for each in graphs.captured.values()]
    if not all(isinstance(output, torch.Tensor) for output in outputs):
        return "the model returns several tensors"
    if not graphs.pads and any(len(output) != rows for rows, output in zip(graphs.captured, outputs, strict=True)):
        return "the output does not have one row for each input row"
    if graphs.uses_random_numbers():
        return "the model uses random numbers"
    return ""


def attach(backend: TensorBackend, graphs: Graphs, *, takes_rows: bool, watch_every: int) -> CapturedModel:
    """Give the batches of a backend to hami-cuda first, as far as these graphs fit them.

    Args:
        backend: It gets the requests that hami-cuda leaves: other shapes, types or packages, and more rows.
        graphs: They can be used if `why_not` returns nothing. They then know the native model.
        takes_rows: Whether data without the batch axis is one row.
        watch_every: One of so many joined batches is left to the backend; 0: none.
    """
    device = Device(str(backend.torch_device))
    model = captured.CapturedModel(
        device,
        _region(graphs.input),
        pads=graphs.pads,
        takes_rows=takes_rows,
        watch_every=watch_every,
        owner=type(backend).__name__,
    )
    graphs.share(model)
    with model.using(0):
        for rows, each in graphs.captured.items():
            model.add(int(each.graph.raw_cuda_graph_exec()), rows, _region(each.output))
    backend.delegate(captured.BACKEND, convert=_as_torch, model=model.number, device=str(device))
    return model


def _as_torch(tensor: Any) -> torch.Tensor:
    """Return a hami.Tensor as a torch tensor, ordered with the current stream. Costs less than torch.from_dlpack."""
    index = tensor.__dlpack_device__()[1]
    handle = torch._C._cuda_getCurrentRawStream(index)
    return cast(torch.Tensor, _from_dlpack(tensor.__dlpack__(stream=handle or _DEFAULT_STREAM)))


def _region(tensor: torch.Tensor) -> Region:
    return captured.Region(tensor.data_ptr(), dtype_name(tensor.dtype), tensor.shape, tensor.stride())
