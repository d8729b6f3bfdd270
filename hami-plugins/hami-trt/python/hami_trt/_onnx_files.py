"""The files that an ONNX model consists of, and one hash of all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import hami
from hami_model_check.onnx import read_onnx

_CHUNK = 1 << 22  # bytes to read at a time while hashing


def hash_model(model: Path, owner: str, limits: Mapping[str, int] = MappingProxyType({})) -> str:
    """Return a SHA-256 hash of a model and of all files with its weights; `limits` are those of read_onnx."""
    digest = hashlib.sha256(_hash_file(model))
    for path in weights_of(model, owner, limits):
        digest.update(str(path.relative_to(model.parent)).encode() + b"\0" + _hash_file(path))
    return digest.hexdigest()


def weights_of(model: Path, owner: str, limits: Mapping[str, int] = MappingProxyType({})) -> list[Path]:
    """Return the files with weights of a model; `limits` are those of read_onnx."""
    paths = []
    for location in read_onnx(model, backend=owner, empty_inputs=False, **limits).external_files:
        paths.append(model.parent / location)
        if not paths[-1].is_file():
            raise hami.ConfigError(
                f'{owner}: weights file "{location}" of "{model}" does not exist; expected it beside the model'
            )
    return paths


def _hash_file(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.digest()
