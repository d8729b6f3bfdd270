"""Load the weights of a module from a state dict of torch.save or from a safetensors file."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import hami

from hami_torch._compiled import ORIGINAL_MODULE
from hami_torch._torch import torch, torch_untyped

_MAX_REASON_LENGTH = 400  # characters of torch's explanation that an error message repeats


def load_weights(module: torch.nn.Module, path: str, factory: str, owner: str) -> None:
    """Load a file into the module that the factory made; raises ConfigError if it does not fit.

    The weights may have been saved from this module or from the module that torch.compile made of it.
    """
    read = _safetensors_reader(path, owner) if path.endswith(".safetensors") else _read_state_dict
    try:
        weights = read(path)
        original = getattr(module, ORIGINAL_MODULE, module)
        if isinstance(weights, MutableMapping):
            prefix = f"{ORIGINAL_MODULE}."
            torch_untyped.nn.modules.utils.consume_prefix_in_state_dict_if_present(weights, prefix)
            _add_shared_weights(weights, original.state_dict())
        original.load_state_dict(weights)
    except Exception as error:  # unpickling, safetensors and load_state_dict raise many types
        raise hami.ConfigError(
            f'{owner}: the weights "{path}" do not fit the module that "{factory}" makes: {_one_line(error)}'
        ) from error


def _read_state_dict(path: str) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def _safetensors_reader(path: str, owner: str) -> Callable[[str], Any]:
    try:
        from safetensors.torch import load_file
    except ImportError:
        raise hami.ConfigError(
            f'{owner}: the weights "{path}" need the package safetensors, which is not installed: '
            "pip install hami-torch[safetensors]"
        ) from None
    reader: Callable[[str], Any] = load_file
    return reader


def _add_shared_weights(weights: MutableMapping[str, Any], state: dict[str, Any]) -> None:
    """Add the missing names of weights that share memory with a present one; safetensors stores them only once."""
    by_memory = {_memory_key(tensor): name for name, tensor in state.items() if name in weights}
    for name, tensor in state.items():
        if name not in weights and (other := by_memory.get(_memory_key(tensor))) is not None:
            weights[name] = weights[other]


def _memory_key(tensor: Any) -> object:
    """Return a key that is equal for two tensors over the same memory; without memory, each tensor has its own."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.is_meta or not tensor.numel():
        return object()
    return tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride()


def _one_line(error: BaseException) -> str:
    """Return the whole message of an exception as one line, shortened if it is long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _MAX_REASON_LENGTH else text[: _MAX_REASON_LENGTH - 2] + " …"
