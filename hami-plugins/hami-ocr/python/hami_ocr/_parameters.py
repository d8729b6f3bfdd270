"""What the backends with a model share: their parameters, and that any thread may call them."""

from __future__ import annotations

from typing import Annotated, Any

import hami


class RunsModel(hami.Backend):
    """Base of the backends with a model; onnxruntime may be called from any thread and releases the GIL."""

    thread = "concurrent"

    threads: Annotated[int, "threads of the model's session; 0: all cores this process may use"] = 0
    provider: Annotated[str, "execution provider of onnxruntime, as in hami-onnx"] = "cpu"


def data_of(item: Any, backend: str) -> Any:
    """Return the request's `data`, or say that there is none."""
    if "data" not in item:
        raise hami.RequestError(f'{backend}: the request has no "data"; its keys are {sorted(item.keys())}')
    return item["data"]


def field_of(data: Any, name: str, backend: str, expected: str) -> Any:
    """Return one entry of `data`, which is a dict made by the step before."""
    try:
        return data[name]
    except (TypeError, KeyError, IndexError):
        shown = f"a dict with the keys {sorted(data)}" if isinstance(data, dict) else type(data).__name__
        raise hami.DataTypeError(f"{backend} takes {expected}, got {shown}") from None
