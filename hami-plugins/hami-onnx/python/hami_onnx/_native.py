"""NativeSession: a session of the native library, which runs models whose values are all tensors of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import hami
import numpy as np

from hami_onnx._runtime import find_library
from hami_onnx._specs import Specs, TensorSpec


class NativeSettings(NamedTuple):
    """What identifies a session; src/session.hpp has the same fields."""

    library: str
    model: str
    threads: int
    busy_threads: int
    custom_operators: list[str]
    plugin_providers: list[str]  # that are packages of their own
    cpu_fallback: bool
    memory: str  # arena, shrink or none
    freed: list[str]  # offsets in the file: lengths of 1 that the session leaves free
    version: str  # of the files of the model

    def plan(self) -> dict[str, Any]:
        """Return the entry `settings` of the option `onnx_plan`."""
        return self._asdict()


class NativeSession:
    """Runs a model once for each call, on the session that the backends of the native library share.

    Attributes:
        settings: those of the session.
        specs: the inputs and outputs; None: a value is not a tensor of numbers, which the native library does not run.
        assigned: the operators that each provider runs, by its own name; empty if only the CPU was asked for, or before
            ONNX Runtime 1.24.
    """

    def __init__(self, settings: NativeSettings) -> None:
        self.settings = settings
        config: dict[str, Any] = {
            "backend": "hami-onnx::OnnxSession",
            "model": settings.model,
            "threads": settings.threads,
            "busy_threads": settings.busy_threads,
            "custom_operators": settings.custom_operators,
            "plugin_providers": settings.plugin_providers,
            "cpu_fallback": settings.cpu_fallback,
            "memory": settings.memory,
            "freed": settings.freed,
            "version": settings.version,
        }
        if settings.library != str(find_library()):
            config["onnxruntime"] = settings.library  # a file that the user has allowed
        self._pipe = hami.pipe(config)
        found = self._pipe({"data": None})["result"]
        self.specs = _specs_of(found)
        self.assigned: dict[str, list[str]] = found["assigned"]

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Run the model; returns one array for each output. Raises RequestError."""
        assert self.specs is not None
        try:
            result = self._pipe({"data": dict(feeds)})["result"]
        except hami.RequestError as error:
            raise hami.RequestError(str(error).splitlines()[0].removeprefix("OnnxTensor: ")) from error
        values = list(result.values()) if len(self.specs.outputs) != 1 else [result]
        return [hami.to_numpy(value) for value in values]


def _specs_of(found: Mapping[str, Any]) -> Specs | None:
    kinds = [[_spec(port) for port in found[kind]] for kind in ("inputs", "optional", "outputs")]
    if any(spec is None for specs in kinds for spec in specs):
        return None
    inputs, optional, outputs = ([spec for spec in specs if spec] for specs in kinds)
    return Specs(inputs, [spec._replace(is_optional=True) for spec in optional], outputs)


def _spec(port: Mapping[str, Any]) -> TensorSpec | None:
    if port["dtype"] is None:
        return None
    shape: Sequence[int] = port["shape"]
    names: Sequence[str] = port["axis_names"]
    return TensorSpec(
        port["name"],
        port["dtype"],
        np.dtype(port["dtype"]),
        tuple(None if size < 0 else size for size in shape),
        tuple(name if size < 0 and name else None for size, name in zip(shape, names, strict=True)),
    )
