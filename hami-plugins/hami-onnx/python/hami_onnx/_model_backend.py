"""OnnxModelBackend: the base class of the backends that open a model, with their parameters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import hami
from hami.types import FilePath
from hami_model_check.onnx import OnnxLimits
from hami_tensor.model_keys import ModelKeys
from hami_tensor.values import checked_cast

from hami_onnx._free_axis import open_joined
from hami_onnx._invariance import keep_bits
from hami_onnx._model import Model
from hami_onnx._native import NativeSession
from hami_onnx._providers import CPU, proof_rules


class OnnxModelBackend(OnnxLimits):
    """Opens the model that its parameters describe. Any number of threads may run a session; a run releases the GIL."""

    thread = "concurrent"
    lightweight = True  # all instances share one session

    model: Annotated[FilePath, "path of the ONNX file"]
    provider: Annotated[
        list[str],
        "execution provider: cpu, cuda, openvino, … or its full name; or several, the preferred one first",
    ] = ["cpu"]  # noqa: RUF012
    cpu_fallback: Annotated[bool, "whether the CPU runs operators that the provider does not take"] = True
    provider_options: Annotated[list[str], "options of the provider, each written as key=value"] = []  # noqa: RUF012
    threads: Annotated[int, "threads of the session; 0: all cores that this process may use"] = 0
    busy_threads: Annotated[
        int, "threads of a run on the CPU while more runs last than half of `threads`; 0: always `threads`"
    ] = 0
    custom_operators: Annotated[list[str], "libraries with operators of your own; they must be allowed files"] = []  # noqa: RUF012
    memory: Annotated[
        Literal["arena", "shrink", "none"],
        "memory that a run has used: keep it, give it back after the run, or use no arena",
    ] = "arena"
    onnxruntime: Annotated[
        Path | None, "path of libonnxruntime.so; default: that of the installed onnxruntime package"
    ] = None
    batched: Annotated[
        bool | None,
        "whether requests are joined; default: if the graph proves, or a test shows, that rows are independent",
    ] = None
    batch_axes: Annotated[
        list[str], "the axis of the rows, each written as name=axis or name=none; default: found"
    ] = []  # noqa: RUF012
    cast: Annotated[str, "conversion of inputs: exact (values that the declared type has), safe, or false"] = "exact"
    inputs: Annotated[
        list[str],
        "read each input from the key of its name: the names of all inputs; default: if there is no `data`",
    ] = []  # noqa: RUF012
    batch_invariant: Annotated[
        bool, "run only with numbers of rows for which each row is equal bit for bit; lone rows run alone"
    ] = False
    isolate_load: Annotated[bool, "load the model in a child process first, which must succeed"] = False

    def open_model(self, options: Any, backend: str) -> Model:
        """Open the model in the native library if that runs it, else in the package onnxruntime.

        Args:
            options: those of the instance.
            backend: name of the backend for users.
        """
        path = os.path.abspath(self.model)
        settings = [",".join(self.provider), self.provider_options, self.custom_operators]
        arguments: dict[str, Any] = {
            "provider": self.provider,
            "cpu_fallback": self.cpu_fallback,
            "provider_options": self.provider_options,
            "threads": self.threads,
            "busy_threads": self.busy_threads,
            "custom_operators": self.custom_operators,
            "memory": self.memory,
            "limits": self.onnx_limits(),
            "isolate_load": self.isolate_load,
            "init_event": options.get("init_event"),
            "backend": backend,
        }
        model = open_joined(
            self.model,
            self.onnxruntime,
            arguments,
            batched=self.batched,
            batch_axes=self.batch_axes,
            rules=proof_rules(self.provider),
            settings=settings,
        )
        self._report_operators(model, backend)
        model.cast = checked_cast(self.cast, backend)
        model.keys = ModelKeys(
            backend,
            [spec.name for spec in model.inputs],
            [spec.name for spec in model.optional],
            self.inputs,
        )
        if self.batch_invariant:
            keep_bits(model, path, settings=settings, limits=self.onnx_limits(), remark=self.remark, backend=backend)
        if self.batched is not False and not model.rows.joins:
            self.remark(f"{backend} runs requests one by one: {model.joining.explained}")
        elif model.rows.fixed == 1 and model.joining.cure:
            self.remark(f"{backend} runs rows one by one: {model.joining.cure}")
        return model

    def _report_operators(self, model: Model, backend: str) -> None:
        """Raise ConfigError if the providers take no operator, and remark those that the CPU runs in their place."""
        assigned = model.session.assigned if isinstance(model.session, NativeSession) else {}
        on_cpu = assigned.get(CPU, [])
        names = ", ".join(dict.fromkeys(on_cpu))
        shown = ", ".join(self.provider)
        if on_cpu and len(assigned) == 1:
            raise hami.ConfigError(
                f'{backend}: the execution provider {shown} takes no operator of "{self.model}" ({names}); '
                'write provider = "cpu", or export the model with operators that the provider has'
            )
        if on_cpu:
            total = sum(map(len, assigned.values()))
            self.remark(f"{backend}: the CPU runs {len(on_cpu)} of {total} operators, not taken by {shown}: {names}")
