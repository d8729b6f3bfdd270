"""show_program and findings_of: what `hami show` and `hami check` print about a model."""

from __future__ import annotations

import os
from typing import Any

import hami
from hami_model_check.row_test import tolerance

from hami_torch._device import device_of
from hami_torch._joining import coarsest_type, decide, measure_rows, node_count, row_inputs, settings_of
from hami_torch._program import Program, Source, open_program
from hami_torch._tensor import dtype_name
from hami_torch._torch import torch


def show_program(path: str) -> dict[str, Any]:
    """Return facts about a model: inputs, and whether requests are joined, and how that is known.

    The test runs on the first GPU, or on the CPU if there is none.

    Raises:
        hami.ConfigError: the model cannot be opened.
    """
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    source = Source(os.path.abspath(path), "", (), "", device, None, False)
    program = open_program(source, "TorchModel")
    inputs = program.inputs
    joining = decide(
        source,
        program,
        batched=None,
        settings=settings_of({}),
        measure=None
        if inputs is None
        else lambda: measure_rows(program, inputs, device, lambda tensor, dtype: tensor.to(dtype)),
    )
    facts: dict[str, Any] = {
        "engine": f"torch {torch.__version__}, {device}",
        "inputs": [f"{spec.name}  {dtype_name(spec.dtype)} {list(spec.shape)}" for spec in inputs or ()],
        **joining.facts(),
    }
    if inputs is None:
        facts["reason"] = 'the inputs of the file are unknown, so that it cannot be tested; set "row_shape" in the node'
    if joining.joins and joining.largest is not None:
        facts["largest difference"] = _largest(joining.largest, program, device)
    return {name: value for name, value in facts.items() if value not in ("", [])}


def _largest(largest: float, program: Program, device: torch.device) -> str:
    assert program.inputs is not None
    dtype = row_inputs(program.inputs)[0].dtype
    allowed = tolerance(dtype, node_count(program), coarsest_type(program, device))
    rounding = f", rounding explains {allowed:.1e}" if allowed else ""
    return f"{largest:.1e} of the largest value, alone against in batches{rounding}"


def findings_of(params: dict[str, Any]) -> list[str]:
    """Return a sentence about the model of a configured TorchModel, from the cache; nothing is loaded."""
    path = str(params.get("model") or "")
    if not os.path.isfile(path) or params.get("batched") is not None:
        return []
    try:
        device = device_of(str(params.get("device", "cuda")), "TorchModel")
    except hami.ConfigError:
        return []  # the check of the configuration reports it
    dtype = getattr(torch, str(params["dtype"])) if params.get("dtype") else None
    source = Source(path, "", (), "", device, dtype, bool(params.get("channels_last", False)))
    joining = decide(source, None, batched=None, settings=settings_of(params), measure=None)
    name = os.path.basename(path)
    if not joining.tested:
        return [f'"{name}": whether requests are joined is tested when the model is opened; "hami show" runs the test']
    return [joining.finding(name)]
