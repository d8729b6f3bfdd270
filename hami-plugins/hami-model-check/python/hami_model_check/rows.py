"""prove_rows: proves from an ONNX file that a row of a batch never depends on its neighbours, or says why it may."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from hami_model_check.onnx import read_onnx

Verdict = Literal["independent", "mixes", "unknown"]


@dataclass(frozen=True)
class Reason:
    """Why the rows of a batch influence each other, or why that is not known.

    Attributes:
        operator: the operator with its domain, for example "Softmax" or "com.microsoft.Attention".
        node: the name of the node; empty if it has none.
        opset: the version of the operator's domain that the model imports.
        why: a part of a sentence, for example "normalises along axis 0, which is the batch axis".
    """

    operator: str
    node: str
    opset: int
    why: str

    def __str__(self) -> str:
        return f'{self.operator} (opset {self.opset}, node "{self.node}") {self.why}'


@dataclass(frozen=True)
class RowProof:
    """What prove_rows found.

    Attributes:
        verdict: "independent": each row of the outputs depends only on the same row of the inputs; "mixes": rows
            influence each other; "unknown": neither is proven.
        input_axes: the batch axis of each input; None: it has none, and must be equal in all joined requests.
        output_axes: the batch axis of each output; None: the output is the same for all rows. Complete if the verdict
            is "independent".
        reason: the first cause of another verdict than "independent".
        quantized: whether the cause is a scale that is computed from all rows (dynamic quantisation). Static scales
            change that.
    """

    verdict: Verdict
    input_axes: Mapping[str, int | None] = field(default_factory=dict)
    output_axes: Mapping[str, int | None] = field(default_factory=dict)
    reason: Reason | None = None
    quantized: bool = False


def prove_rows(
    path: str | os.PathLike[str],
    *,
    backend: str,
    engine: str = "onnx",
    batch_axes: Mapping[str, int | None] | None = None,
    max_nodes: int = 100_000,
    max_graph_depth: int = 10,
    max_call_depth: int = 64,
) -> RowProof:
    """Prove that the rows of a batch do not influence each other; a file that has not changed is not read again.

        proof = prove_rows("detector.onnx", backend="OnnxTensor")
        if proof.verdict != "independent":
            print(proof.reason)

    Args:
        path: an ONNX file.
        backend: the backend that opens it, for messages.
        engine: "onnx" for the specification, "openvino" for what OpenVINO computes.
        batch_axes: the batch axis of each input; None: axis 0 of each, and other axes if that proves nothing.
        max_nodes, max_graph_depth, max_call_depth: limits of `read_onnx`.

    Raises:
        hami.ConfigError, OSError: as `read_onnx`.
    """
    read_onnx(
        path,
        backend=backend,
        max_nodes=max_nodes,
        max_graph_depth=max_graph_depth,
        max_call_depth=max_call_depth,
        empty_inputs=True,
    )
    return RowProof("unknown", reason=Reason("", "", 0, "is not analysed yet"))
