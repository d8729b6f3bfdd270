"""declared_data: converts numbers, lists and arrays in CPU memory to what a program takes, as the key `cast` allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import hami
import numpy as np
from hami_tensor.values import Cast, as_declared, is_plain

from hami_torch._program import InputSpec
from hami_torch._tensor import casts_safely, dtype_name
from hami_torch._torch import torch


def declared_data(data: Any, specs: Sequence[InputSpec], cast: Cast, owner: str) -> Any:
    """Return the data of a request with each part as `declared`; data of another form than the inputs is unchanged.

    A list of numbers, or of lists of them, is the only input of a program with one.

    Raises:
        hami.DataTypeError: a value has no equal of the type that the program takes, or `cast` forbids the conversion.
    """
    if isinstance(data, Mapping):
        by_name = {spec.name: spec for spec in specs}
        if data.keys() != by_name.keys():
            return data
        return {name: declared(value, by_name[name], cast, owner) for name, value in data.items()}
    if len(specs) == 1 and (not isinstance(data, (list, tuple)) or (data and all(map(is_plain, data)))):
        return declared(data, specs[0], cast, owner)
    if isinstance(data, (list, tuple)) and len(data) == len(specs):
        return [declared(value, spec, cast, owner) for value, spec in zip(data, specs, strict=True)]
    return data


def declared(value: Any, spec: InputSpec, cast: Cast, owner: str) -> Any:
    """Return a value as an array of the type of an input, if it is plain numbers or its own type needs a check.

    Types that NumPy lacks, and tensors in device memory, are left to the rule for types, as with "safe".
    """
    dtype = _numpy_dtype(spec.dtype)
    what = f'{owner}: input "{spec.name}"'
    if dtype is None or (isinstance(value, torch.Tensor) and value.device.type != "cpu"):
        return value
    if is_plain(value):
        return as_declared(value, dtype, what, cast)
    given = value.dtype if isinstance(value, (torch.Tensor, np.ndarray, np.generic)) else None
    source = given if isinstance(given, torch.dtype) else getattr(torch, str(given), None)
    if cast != "exact" or not isinstance(source, torch.dtype) or casts_safely(source, spec.dtype):
        return value
    array = hami.to_numpy(value.detach()) if isinstance(value, torch.Tensor) else value
    return as_declared(array, dtype, what, cast)


def _numpy_dtype(dtype: torch.dtype) -> np.dtype[Any] | None:
    try:
        return np.dtype(dtype_name(dtype))
    except TypeError:  # such as bfloat16
        return None
