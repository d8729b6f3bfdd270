"""What the tensor backends share: the device, and the checks on what came in as `data`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Annotated, Any

import hami

from hami_torch._device import as_current, device_of, is_current, out_of_memory
from hami_torch._rows import Rows, rows_of_batch, whole_of
from hami_torch._streams import arrive, current, current_handle, let_go, made, on_callers_own, on_default
from hami_torch._torch import torch

_NOTHING = object()
_kind_of = attrgetter("shape", "dtype", "device")  # of tensors that can be gathered as they are


class TensorBackend(hami.Backend):
    """Base of the backends that work on one device; torch releases the GIL, so any thread may call them."""

    thread = "concurrent"

    devices = ("cuda", "cpu")  # the kinds of device that it works on; not annotated, so no parameter

    device: Annotated[str, "cuda, cuda:N or cpu; what is not there is an error"] = "cuda"

    def init(self, options: Any) -> None:
        self.torch_device = device_of(self.device, type(self).__name__, self.devices)

    def forward(self, batch: list[Any]) -> None:
        device = self.torch_device
        if not is_current(device):
            with as_current(device):
                self.forward(batch)
        elif on_callers_own(device):
            with on_default(device):
                self._forward(batch)
        else:
            self._forward(batch)

    def _forward(self, batch: list[Any]) -> None:
        keeps_grad = torch.is_grad_enabled()
        if keeps_grad:
            torch._C._set_grad_enabled(False)  # as torch.no_grad() does, with less ado
        try:
            self.run(batch)
            return
        except torch.cuda.OutOfMemoryError as error:
            reason = str(error).strip().partition("\n")[0]
        finally:
            if keeps_grad:
                torch._C._set_grad_enabled(True)
        # Here the exception is gone, and with its traceback the frames that held the tensors of the batch.
        if self.torch_device.type == "cuda":
            let_go(current(self.torch_device))
        raise out_of_memory(self.torch_device, type(self).__name__, reason)

    def run(self, batch: list[Any]) -> None:
        raise NotImplementedError

    def read(self, batch: list[Any], take: Callable[[Any], Any] | None = None) -> list[tuple[Any, Any]]:
        """Return each request with what `take` reads of it, its tensor as a rule; those that are wrong fail alone."""
        found = []
        take = take or self.tensor_of
        for item in batch:
            try:
                found.append((item, take(item)))
            except hami.Error as error:
                item.fail(without_frames(error))
        arrive([value for _, value in found], self.torch_device)
        return found

    def parts(self, batch: list[Any]) -> tuple[list[torch.Tensor], list[int]] | None:
        """Return the `data` of a batch as tensors on the device to be gathered as they are, and each request's rows.

        That is one tensor where the requests hold the rows of one, as the results of a batch are, so what the next
        backend checks there need not be checked of each; else one for each request, of equal shapes. None if the
        requests hold anything else, or one holds no rows.
        """
        rows = rows_of_batch(batch)
        if rows is not None:
            if rows.whole.device != self.torch_device or 0 in rows.counts:
                return None
            rows.arrive(self.torch_device)
            return [rows.whole], rows.counts
        each = [item.get("data") for item in batch]
        if set(map(type, each)) != {torch.Tensor}:
            return None
        whole = whole_of(each)
        first = each[0] if whole is None else whole
        shape = first.shape
        if not shape or first.device != self.torch_device:
            return None
        if whole is None:
            if len(set(map(_kind_of, each))) > 1:
                return None
            parts, counts = each, [shape[0]] * len(each)
        else:
            parts, counts = [whole], [part.shape[0] for part in each]
        if 0 in counts:
            return None
        arrive(each, self.torch_device)
        return parts, counts

    def give_rows(self, batch: list[Any], whole: torch.Tensor, counts: list[int]) -> None:
        """Set the result of each request of a batch to its rows of one tensor."""
        if len(batch) == 1:
            self.give(batch[0], whole)
        else:
            hami.scatter(batch, Rows(whole, counts, current_handle(self.torch_device)))

    def tensor_of(self, item: Any) -> torch.Tensor:
        """Return `data` as a tensor on the device."""
        return self.check(as_tensor(data_of(item, type(self).__name__), type(self).__name__))

    def check(self, tensor: torch.Tensor) -> torch.Tensor:
        """Refuse a tensor that is on another device."""
        if tensor.device == self.torch_device:
            return tensor
        owner, wanted = type(self).__name__, self.torch_device
        remedy = f"put {'CpuTensor' if wanted.type == 'cpu' else 'GpuTensor'} before it"
        if tensor.device.type in self.devices:
            remedy += f', or say device = "{tensor.device}"'
        raise hami.DataTypeError(f"{owner} takes a tensor on {wanted}, got {show(tensor)} on {tensor.device}; {remedy}")

    def give(self, item: Any, value: Any) -> None:
        """Set the result of a request; tensors that are not the request's own were made on the current stream."""
        handle = current_handle(self.torch_device)
        if handle:
            given = [id(tensor) for tensor in flat(item["data"])]
            for tensor in flat(value):
                if id(tensor) not in given:
                    made(tensor, handle)
        item["result"] = value


def without_frames(error: hami.Error) -> hami.Error:
    """Return an exception for a request to fail with: who keeps it does not keep the tensors of the whole batch."""
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error


def data_of(item: Any, owner: str) -> Any:
    """Return the request's `data`, or say that there is none."""
    data = item.get("data", _NOTHING)
    if data is _NOTHING:
        raise hami.RequestError(f'{owner}: the request has no "data"; its keys are {sorted(item.keys())}')
    return data


def as_tensor(data: Any, owner: str) -> torch.Tensor:
    """View `data` as a tensor without a copy: tensors as they are, others through DLPack."""
    if isinstance(data, torch.Tensor):
        return data
    if not hasattr(data, "__dlpack__"):
        raise hami.DataTypeError(
            f"{owner} takes a tensor (torch's, or anything with DLPack), got {type(data).__name__}"
        )
    try:
        return torch.from_dlpack(hami.to_numpy(data).copy() if _is_to_be_copied(data) else data)
    except (BufferError, RuntimeError, TypeError) as error:
        raise hami.DataTypeError(f"{owner}: torch cannot read this {type(data).__name__}: {error}") from error


def _is_to_be_copied(data: Any) -> bool:
    """Whether memory is read-only, which a tensor cannot say, or runs backwards, over which torch ends the process."""
    try:
        view = memoryview(data)
    except (BufferError, TypeError, ValueError):  # not in CPU memory, or of a type that only torch knows
        return False
    return view.readonly or min(view.strides, default=0) < 0


def size_of(item: Any) -> int:
    """Return how many items a request counts."""
    return item.get("request_size", 1)  # type: ignore[no-any-return]


def rows_of(tensor: torch.Tensor, item: Any, owner: str, name: str = "data") -> torch.Tensor:
    """Return the tensor if it has as many rows along axis 0 as its request counts."""
    size = size_of(item)
    if tensor.ndim == 0 or tensor.shape[0] != size:
        raise hami.RequestError(
            f'{owner}: "{name}" is {show(tensor)}, and request_size is {size}: axis 0 has as many rows as request_size'
        )
    return tensor


def flat(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a value: itself, or those of a list or dict."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return [part for part in parts if isinstance(part, torch.Tensor)]


def named_parts(value: Any) -> dict[str, Any]:
    """Return the parts of a request's `data` by what errors call them: data, data[0], … or the names of a dict."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return {f"data[{index}]": part for index, part in enumerate(value)}
    return {"data": value}


def form_of(value: Any) -> int | tuple[str, ...] | None:
    """Return how tensors come: None for one by itself, the names of a dict, else how many there are."""
    if isinstance(value, Mapping):
        return tuple(value)
    return len(value) if isinstance(value, (list, tuple)) else None


def each_tensor(value: Any, change: Callable[[Any], torch.Tensor]) -> Any:
    """Apply `change` to a value, or to each in a list or dict, and keep the form."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {name: change(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [change(part) for part in value]
    return change(value)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def show(tensor: torch.Tensor) -> str:
    return f"{dtype_name(tensor.dtype)} {list(tensor.shape)}"
