"""Tensors of the core in Python: their text, comparisons, and arrays of other packages over the same memory.

numpy is imported on first use.
"""

from __future__ import annotations

import math
import sys

from hami._core import Tensor, bfloat16_of_bits, bits_of_bfloat16, check_dlpack
from hami._errors import DataTypeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol, TypeVar

    import numpy as np

    class SupportsDLPack(Protocol):
        """An object that exports its memory through DLPack."""

        def __dlpack__(self, *args: Any, **options: Any) -> Any: ...

    Like = TypeVar("Like")


def to_numpy(tensor: SupportsDLPack) -> np.ndarray[Any, Any]:
    """Convert a tensor to a numpy array over the same memory.

    >>> import numpy
    >>> with hami.pipe("SoftmaxTensor") as pipe:
    ...     tensor = pipe({"data": numpy.zeros((1, 2))})["result"]
    >>> tensor
    <hami.Tensor float64 [1, 2]: [[0.5, 0.5]]>
    >>> hami.to_numpy(tensor)
    array([[0.5, 0.5]])

    Args:
        tensor: A hami.Tensor, a torch tensor in CPU memory, or another object with `__dlpack__`. A numpy array is
            returned unchanged.

    Returns:
        An array of the same shape and dtype.

    Raises:
        DataTypeError: The object has no `__dlpack__`, numpy has no such dtype, or the memory is not on the CPU.
    """
    import numpy

    if isinstance(tensor, numpy.ndarray):
        return tensor
    array: np.ndarray[Any, Any] = _convert(numpy, tensor, "to_numpy", "numpy")
    return array


def to_like(tensor: SupportsDLPack, like: Like) -> Like:
    """Convert a tensor to the type of another array or tensor, over the same memory.

    >>> import numpy
    >>> image = numpy.zeros((1, 2))
    >>> with hami.pipe("SoftmaxTensor") as pipe:
    ...     hami.to_like(pipe({"data": image})["result"], image)
    array([[0.5, 0.5]])

    Args:
        tensor: A hami.Tensor, or another object with `__dlpack__`.
        like: An object of the wanted type. Its package must have `from_dlpack`, as numpy, torch, cupy and jax do.

    Returns:
        An object of the type of `like`, with the shape and dtype of `tensor`.

    Raises:
        DataTypeError: The package of `like` has no `from_dlpack`, or cannot convert the tensor.
    """
    if isinstance(tensor, type(like)):
        return tensor
    converted: Like = _convert(_namespace(like), tensor, "to_like", type(like).__module__.partition(".")[0])
    return converted


class _CheckedExporter:
    """Exports another object through DLPack, and raises DataTypeError if its struct could end the process."""

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._exporter.__dlpack__(**options)
        check_dlpack(self._exporter, capsule)
        return capsule

    def __dlpack_device__(self) -> Any:
        return self._exporter.__dlpack_device__()


def _namespace(like: Any) -> Any:
    """Return the module with `from_dlpack`: the namespace of the array API, otherwise the package of the type."""
    if hasattr(like, "__array_namespace__"):
        return like.__array_namespace__()
    package = sys.modules.get(type(like).__module__.partition(".")[0])
    if hasattr(package, "from_dlpack"):
        return package
    raise DataTypeError(
        f"to_like: the package of {_name(like)} has no from_dlpack; pass an array or a tensor as `like`"
    )


def _convert(namespace: Any, tensor: Any, function: str, package: str) -> Any:
    if not hasattr(tensor, "__dlpack__"):
        raise DataTypeError(f"{function} takes a hami.Tensor or another object with __dlpack__, got {_name(tensor)}")
    if namespace.__name__ == "numpy" and isinstance(tensor, Tensor) and tensor.dtype == "bfloat16":
        return _bfloat16_array(tensor, function)
    try:
        return namespace.from_dlpack(tensor if isinstance(tensor, Tensor) else _CheckedExporter(tensor))
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise DataTypeError(f"{function}: {package} cannot convert {_show(tensor)}: {error}") from error


def _bfloat16_array(tensor: Tensor, function: str) -> Any:
    """Return an array of ml_dtypes.bfloat16, which DLPack of numpy does not know."""
    import numpy

    try:
        from ml_dtypes import bfloat16
    except ImportError as error:
        raise DataTypeError(
            f"{function}: numpy cannot convert {_show(tensor)}: it has no bfloat16 without ml_dtypes: pip install "
            "ml_dtypes; or use tolist()"
        ) from error
    return _convert(numpy, bits_of_bfloat16(tensor), function, "numpy").view(bfloat16)


def exportable(value: object) -> object:
    """Return an object that exports the values of a numpy scalar, or of a numpy array which DLPack cannot describe.

    Bytes of another order are swapped in a copy. An array of ml_dtypes.bfloat16 is exported without a copy. A scalar is
    an array without axes. The result is None for other objects.
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        scalar: Any = value
        return None if scalar.dtype.kind in "OSUMm" else numpy.asarray(scalar)
    if numpy is None or not isinstance(value, numpy.ndarray):
        return None
    array: Any = value
    if array.dtype.name == "bfloat16":
        return bfloat16_of_bits(array.view(numpy.uint16))
    return None if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def as_array(tensor: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """Implement Tensor.__array__."""
    array = to_numpy(tensor)
    wanted = array.dtype if dtype is None else dtype
    if copy is False and array.dtype != wanted:
        raise ValueError(f"{_show(tensor)} cannot be converted to {wanted} without a copy")
    return array.astype(wanted, copy=bool(copy))


def compare(operator: str, tensor: Tensor, other: object) -> Any:
    """Implement the comparisons of Tensor; `operator` is the name of a method, such as "__eq__"."""
    if not isinstance(other, (bool, int, float, complex, list, tuple)) and not hasattr(other, "__dlpack__"):
        return NotImplemented
    try:
        import numpy
    except ImportError as error:
        raise DataTypeError(
            "comparing a hami.Tensor needs numpy: pip install numpy; or compare its tolist()"
        ) from error
    try:
        return getattr(_comparable(tensor), operator)(_comparable(other))
    except (TypeError, ValueError) as error:
        given = _show(other) if isinstance(other, Tensor) else f"{_name(other)} {list(numpy.shape(_comparable(other)))}"
        raise DataTypeError(f"cannot compare {_show(tensor)} with {given}: {error}") from error


def _comparable(value: Any) -> np.ndarray[Any, Any]:
    """Return a value as an array; a tensor of a type that numpy lacks, such as bfloat16, by its elements."""
    import numpy

    if not hasattr(value, "__dlpack__"):
        return numpy.asarray(value)
    try:
        return to_numpy(value)
    except DataTypeError:
        return numpy.asarray(value.tolist())


_SHOWN_WHOLE = 32  # elements; of larger tensors the repr shows the first and the last ones
_EDGE = 3  # elements at each end of the last axis


def show(tensor: Tensor) -> str:
    """Implement Tensor.__repr__."""
    try:
        whole = tensor.nbytes == 0 or math.prod(tensor.shape) <= _SHOWN_WHOLE
        return f"{_show(tensor)[:-1]}: {_elements(tensor, whole=whole)}>"
    except DataTypeError:  # Python has no numbers for the elements
        return _show(tensor)


def _elements(tensor: Tensor, *, whole: bool) -> str:
    if not tensor.shape:
        return _number(tensor.item())
    size = len(tensor)
    if len(tensor.shape) > 1:
        shown = range(size) if whole else range(min(size, 1))
        parts = [_elements(tensor[index, ...], whole=whole) for index in shown]
        return f"[{', '.join(parts + (['…'] if len(parts) < size else []))}]"
    if whole or size <= 2 * _EDGE:
        return f"[{', '.join(map(_number, tensor.tolist()))}]"
    first, last = (", ".join(map(_number, part.tolist())) for part in (tensor[:_EDGE], tensor[-_EDGE:]))
    return f"[{first}, …, {last}]"


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, (float, complex)) else str(value)


def _show(tensor: object) -> str:
    if isinstance(tensor, Tensor):
        device = "" if tensor.device == "cpu" else f" on {tensor.device}"
        return f"<hami.Tensor {tensor.dtype} {list(tensor.shape)}{device}>"
    return f"this {_name(tensor)}"


def _name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
