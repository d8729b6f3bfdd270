"""A module's weights from a file: a state dict by torch.save, or safetensors."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import hami

from hami_torch._compiled import ORIGINAL
from hami_torch._torch import torch


def load_weights(module: torch.nn.Module, path: str, factory: str, owner: str) -> None:
    """Load a file into the module that the factory made, saved from it or from what torch.compile made of it.

    Errors are ConfigError.
    """
    read = _reader_of_safetensors(path, owner) if path.endswith(".safetensors") else _state_dict
    try:
        weights = read(path)
        below = getattr(module, ORIGINAL, module)
        if isinstance(weights, MutableMapping):
            torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(weights, f"{ORIGINAL}.")
            _name_what_is_shared(weights, below.state_dict())
        below.load_state_dict(weights)
    except Exception as error:  # unpickling, safetensors and load_state_dict raise what they like
        raise hami.ConfigError(
            f'{owner}: the weights "{path}" do not fit what "{factory}" makes: {_in_a_line(error)}'
        ) from error


def _state_dict(path: str) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def _reader_of_safetensors(path: str, owner: str) -> Any:
    try:
        from safetensors.torch import load_file
    except ImportError:
        raise hami.ConfigError(
            f'{owner}: the weights "{path}" are read by the package safetensors, which is not installed: '
            "pip install hami-torch[safetensors]"
        ) from None
    return load_file


def _name_what_is_shared(weights: MutableMapping[str, Any], held: dict[str, Any]) -> None:
    """Give a name that is missing the tensor of the one it shares its memory with: safetensors have that once."""
    by_memory = {_memory(tensor): name for name, tensor in held.items() if name in weights}
    for name, tensor in held.items():
        if name not in weights and (other := by_memory.get(_memory(tensor))) is not None:
            weights[name] = weights[other]


def _memory(tensor: Any) -> Any:
    """Return what two tensors have in common that are the same one; without memory each is only itself."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.is_meta or not tensor.numel():
        return object()
    return tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride()


def _in_a_line(error: BaseException, most: int = 400) -> str:
    """Return all that an exception says, as one line and not longer than that."""
    said = " ".join(str(error).split()) or type(error).__name__
    return said if len(said) <= most else said[: most - 2] + " …"
