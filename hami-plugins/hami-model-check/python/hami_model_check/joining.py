"""decide_joining: decides whether requests of different callers may run as one batch, and along which axes.

The answer is `declared` by the user, `proven` from the graph, or `measured` by a test when the model opens. Nothing
joins requests whose rows are known to influence each other, unless the user asks for it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from hami_model_check.findings import recall, remember
from hami_model_check.graph import DTYPES, Port, read_graph

Axes = dict[str, "int | None"]

STATIC_SCALES = (
    "quantise the model with static scales, or set batched = true to accept answers that depend on their neighbours"
)


WITHIN_ROWS = (
    "change the model so that it computes each row by itself (batch normalisation in eval mode, static scales, no "
    "softmax, sort or mean along this axis), or set batched = true to accept answers that depend on their neighbours"
)

log = logging.getLogger("hami.rows")

_warned: set[str] = set()  # models whose finding the user overrides


@dataclass(frozen=True)
class Joining:
    """Whether requests may be joined, and how that is known.

    Attributes:
        joins: whether requests with equal shapes may run as one batch.
        source: "declared" by `batched`, "proven" from the graph, "measured" by running rows, or "none".
        verdict: the finding about the rows: "independent", "mixes" or "unknown".
        input_axes, output_axes: the axis of the rows by name; None: all rows share it.
        operator, node, opset, why: the reason for a verdict that is not "independent", from prove_rows or the test.
        largest: the largest relative difference that the test saw between a row alone and in a batch; None: untested.
        tested: whether a test was tried.
        quantized: whether rows influence each other by a scale that is computed from all rows.
        freed: whether the file fixes the number of rows at 1, and the session takes any number.
        cure: what to change if inputs take exactly one row, so that nothing can run together; "": nothing.
    """

    joins: bool
    source: Literal["declared", "proven", "measured", "none"]
    verdict: Literal["independent", "mixes", "unknown"]
    input_axes: Axes = field(default_factory=dict)
    output_axes: Axes = field(default_factory=dict)
    operator: str = ""
    node: str = ""
    opset: int | None = None
    why: str = ""
    largest: float | None = None
    tested: bool = False
    quantized: bool = False
    freed: bool = False
    cure: str = ""

    @property
    def reason(self) -> str:
        """One sentence that says why requests are not joined, or how it is known that they may be."""
        freed = "; the file fixes one row, and the session takes any number" if self.freed else ""
        if self.joins and self.source == "proven":
            return f"the graph proves that rows are independent ({self.axes}){freed}"
        if self.joins and self.source == "measured":
            return f"rows alone and together were equal when the model opened ({self.axes}){freed}"
        found = self._found()
        if self.source == "declared":
            return f"the configuration says so{f'; found in the model: {found}' if found else ''}"
        if self.verdict == "mixes":
            axes = f" ({self.axes})" if self.source == "measured" and self.axes else ""
            return f"rows influence each other{axes}: {found}"
        return f"it is not known whether rows influence each other: {found}"

    def _found(self) -> str:
        if not self.operator:
            return self.why
        opset = f"opset {self.opset}" if self.opset else ""
        node = f'node "{self.node}"' if self.node else ""
        where = ", ".join(filter(None, [opset, node]))
        return f"{self.operator}{f' ({where})' if where else ''} {self.why}"

    @property
    def advice(self) -> str:
        """What to do if requests should run together although they do not."""
        if self.joins or (self.cure and self.verdict == "unknown"):
            return self.cure
        if self.quantized:
            return STATIC_SCALES
        if self.operator.endswith("ZipMap"):
            return 'export the model with options={"zipmap": False} of skl2onnx, so that its scores are an array'
        if self.verdict == "mixes" and self.source == "measured":
            return WITHIN_ROWS
        if self.verdict == "mixes":
            return "export the model so that this operator works within each row, or send requests one by one"
        return "set batched = true if rows are independent"

    @property
    def explained(self) -> str:
        """The reason and, if there is one, the advice."""
        return f"{self.reason}; {self.advice}" if self.advice else self.reason

    def facts(self) -> dict[str, str]:
        """Return what `hami show` prints."""
        facts = {
            "requests": "joined" if self.joins and not self.cure else "one by one",
            "rows": self.verdict,
            "known by": {"none": "nothing", "proven": "proof", "measured": "test"}.get(self.source, self.source),
            "axes": self.axes if self.joins else "",
            "reason": self.reason,
            "advice": self.advice,
            "opset": str(self.opset or ""),
        }
        return {name: value for name, value in facts.items() if value}

    def finding(self, model: str) -> str:
        """Return the sentence about a model that `hami check` prints."""
        what = "requests are joined" if self.joins and not self.cure else "requests run one by one"
        return f'"{model}": {what}: {self.explained}'

    def warn_of_override(self, backend: str, model: str) -> None:
        """Log once for each model that `batched = true` joins rows that influence each other."""
        if self.source == "declared" and self.joins and self.verdict == "mixes" and model not in _warned:
            _warned.add(model)
            found = replace(self, source="proven", joins=False).reason
            log.warning("%s: batched = true joins the requests of %s, although %s", backend, model, found)

    @property
    def axes(self) -> str:
        """The axes of the rows, such as "x: axis 0, y: axis 1"."""
        named = {**self.input_axes, **self.output_axes}
        return ", ".join(f"{name}: {'shared' if axis is None else f'axis {axis}'}" for name, axis in named.items())


@dataclass(frozen=True)
class Measurement:
    """The result of the test that `decide_joining` may run."""

    verdict: Literal["independent", "mixes", "unknown"]
    input_axes: Axes
    output_axes: Axes
    why: str
    largest: float | None


def decide_joining(
    path: str | os.PathLike[str] | None,
    *,
    backend: str,
    engine: str,
    rules: str | None = "onnx",
    files: Sequence[str] = (),
    batched: bool | None = None,
    batch_axes: Mapping[str, int | None] | None = None,
    measure: Callable[[], Measurement] | None = None,
    settings: object = None,
    limits: Mapping[str, int] | None = None,
) -> Joining:
    """Decide whether requests may be joined. The finding is kept in the cache of the user.

    Args:
        path: the file of the model; None: it has none, so that nothing is kept.
        backend: the backend that opens it, for messages.
        engine: name and version of what runs the model, for the key of the finding.
        rules: the engine by whose rules prove_rows judges; None: the model is not an ONNX file, which has no proof.
        files: all files of the model; empty: `path`.
        batched: what the user says: True joins, False never does, None asks the proof.
        batch_axes: the axis of the rows by input or output, which the user names.
        measure: runs the test, if neither the proof nor the user knows; None: there is none.
        settings: what else may change the answer, such as the options of a provider.
        limits: arguments of read_onnx.

    Raises:
        hami.ConfigError: the file is not a valid model.
        OSError: the file cannot be read.
    """
    if batched is False:
        return Joining(False, "declared", "unknown", why="batched = false")
    named = dict(batch_axes or {})
    parts: dict[str, Any] = {"engine": engine, "settings": [rules, sorted(named.items(), key=str), settings]}
    files = files or ([] if path is None else [os.fspath(path)])
    known = _joining_of(recall(files, reads=False, **parts))
    joining = known
    if joining is None:
        joining = (
            Joining(False, "none", "unknown", why="only an ONNX model has a proof")
            if path is None or rules is None
            else _proven(path, backend, rules, named, limits or {})
        )
    is_measured = False
    if joining.verdict == "unknown" and not joining.tested and measure is not None:
        tested = _joining_of(recall(files, accepts=_is_tested, **parts))
        is_measured = tested is None and batched is None
        joining = tested or (_measured(joining, measure()) if is_measured else joining)
    if joining != known:
        remember(files, asdict(joining), reads=is_measured, **parts)
    if batched and not joining.joins:
        return replace(joining, joins=True, source="declared")
    return joining


def _proven(path: str | os.PathLike[str], backend: str, rules: str, named: Axes, limits: Mapping[str, int]) -> Joining:
    from hami_model_check.rows import prove_rows

    known: Mapping[str, Any] = limits
    proof = prove_rows(path, backend=backend, engine=rules, batch_axes=named or None, **known)
    reason = proof.reason
    joins = proof.verdict == "independent" and any(axis is not None for axis in proof.input_axes.values())
    joining = Joining(
        joins,
        "proven" if joins or proof.verdict == "mixes" else "none",
        proof.verdict,
        dict(proof.input_axes or {}),
        dict(proof.output_axes or {}),
        cure=_cure(path, proof.input_axes if joins else None) if proof.verdict != "mixes" else "",
    )
    if reason is None:
        return joining
    return replace(
        joining,
        operator=reason.operator,
        node=reason.node,
        opset=reason.opset,
        why=reason.why,
        quantized=proof.quantized,
    )


def _cure(path: str | os.PathLike[str], axes: Mapping[str, int | None] | None) -> str:
    """Return which inputs take exactly one row, and how torch exports them with any number; "" if others do not.

    Args:
        path: the model.
        axes: the axis of the rows by input; None: unknown, and axis 0 looks like it.
    """
    main = read_graph(path).main
    found = [
        (port, axis)
        for port in main.inputs
        if port.name not in main.constants and port.shape
        for axis in [0 if axes is None else axes.get(port.name)]
        if axis is not None and axis < len(port.shape)
    ]
    if not found or any((port.shape or ())[axis] != 1 for port, axis in found):
        return ""
    shapes = ", ".join(f'input "{port.name}" has the fixed shape {_shown(port)}' for port, _ in found)
    free = ", ".join(f'"{port.name}": {{{axis}: "batch"}}' for port, axis in found)
    return f"{shapes}; export the model with dynamic_shapes={{{free}}} of torch.onnx.export, or another free batch axis"


def _shown(port: Port) -> str:
    sizes = ", ".join("?" if size is None else str(size) for size in port.shape or ())
    return f"{DTYPES.get(port.data_type, '?')} [{sizes}]"


def _measured(joining: Joining, found: Measurement) -> Joining:
    if found.verdict == "unknown":
        return replace(joining, why=f"{joining.why}; the test could not run: {found.why}", tested=True)
    return replace(
        joining,
        joins=found.verdict == "independent",
        source="measured",
        verdict=found.verdict,
        input_axes=found.input_axes,
        output_axes=found.output_axes,
        operator="",  # the test says nothing about operators
        node="",
        why=found.why,
        largest=found.largest,
        tested=True,
        cure="",  # the rows may be along another axis
    )


def _joining_of(entry: Mapping[str, Any] | None) -> Joining | None:
    """Return what an entry of the cache says, or None if it is not what `decide_joining` wrote."""
    if entry is None:
        return None
    try:
        joining = Joining(**entry)
        valid = (
            isinstance(joining.joins, bool)
            and joining.source in ("proven", "measured", "none")
            and joining.verdict in ("independent", "mixes", "unknown")
            and (not joining.joins or (joining.verdict == "independent" and joining.source != "none"))
            and all(_is_axes(axes) for axes in (joining.input_axes, joining.output_axes))
        )
    except TypeError:
        return None
    return joining if valid else None


def _is_tested(entry: Mapping[str, Any]) -> bool:
    joining = _joining_of(entry)
    return joining is not None and joining.tested


def _is_axes(axes: object) -> bool:
    return isinstance(axes, dict) and all(
        isinstance(name, str) and (axis is None or (isinstance(axis, int) and 0 <= axis < 64))
        for name, axis in axes.items()
    )
