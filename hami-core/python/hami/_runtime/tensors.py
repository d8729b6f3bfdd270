"""Tensors of the core as what a caller wants them to be; numpy is imported here, and only when asked for."""

from __future__ import annotations

import sys

from hami._core import Tensor
from hami._errors import DataTypeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol, TypeVar

    import numpy as np

    class SupportsDLPack(Protocol):
        """An object that exports its memory by DLPack."""

        def __dlpack__(self, **options: Any) -> Any: ...

    Like = TypeVar("Like")


def to_numpy(tensor: SupportsDLPack) -> np.ndarray[Any, Any]:
    """Return a tensor as a numpy array over the same memory.

        scores = hami.to_numpy(request["result"])

    tensor: a hami.Tensor, a torch tensor in CPU memory, a numpy array (which comes back as it is), or anything else
    with `__dlpack__`. Raises DataTypeError where numpy has no such dtype, or the memory is not the CPU's.
    """
    import numpy

    if isinstance(tensor, numpy.ndarray):
        return tensor
    array: np.ndarray[Any, Any] = _convert(numpy, tensor, "to_numpy", "numpy")
    return array


def to_like(tensor: SupportsDLPack, like: Like) -> Like:
    """Return a tensor as the type of `like`, over the same memory: numpy in, numpy out; torch in, torch out.

        image = torch.rand(1, 3, 224, 224)
        scores = hami.to_like(pipe({"data": image})["result"], image)

    like: an object of the wanted type, whose package has `from_dlpack` (numpy, torch, cupy, jax, …). Raises
    DataTypeError if it has not, or cannot take the tensor.
    """
    if isinstance(tensor, type(like)):
        return tensor
    made: Like = _convert(_namespace(like), tensor, "to_like", type(like).__module__.partition(".")[0])
    return made


def _namespace(like: Any) -> Any:
    """Return what has `from_dlpack`: the array API's answer, else the package of the type."""
    if hasattr(like, "__array_namespace__"):
        return like.__array_namespace__()
    package = sys.modules.get(type(like).__module__.partition(".")[0])
    if hasattr(package, "from_dlpack"):
        return package
    raise DataTypeError(f"to_like: the package of {_name(like)} has no from_dlpack; give it an array or tensor")


def _convert(namespace: Any, tensor: Any, function: str, wanted: str) -> Any:
    if not hasattr(tensor, "__dlpack__"):
        raise DataTypeError(f"{function} takes a hami.Tensor or anything else with __dlpack__, got {_name(tensor)}")
    try:
        return namespace.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise DataTypeError(f"{function}: {wanted} cannot take {_show(tensor)}: {error}") from error


def _show(tensor: object) -> str:
    return repr(tensor) if isinstance(tensor, Tensor) else f"this {_name(tensor)}"


def _name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
