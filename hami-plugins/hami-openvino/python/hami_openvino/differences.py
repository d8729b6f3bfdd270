"""find_differences: finds what OpenVINO computes differently from the ONNX specification in a model.

for difference in find_differences("detector.onnx"):
    print(difference)
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from hami_model_check.graph import Constant, Graph, read_graph

from hami_openvino._difference_rules import ELSEWHERE, NEWEST_OPSET, RULES, Difference, Rule, Version
from hami_openvino._openvino import version as installed_version
from hami_openvino._types import typed_bodies

__all__ = ["CHECKED_VERSION", "Difference", "differences_of", "find_differences", "openvino_version"]

# The first version that runs the operator cases of onnx without a difference that is not listed.
CHECKED_VERSION = (2026, 4)
NEWEST_IR = 14
_32_BITS = range(-(1 << 31), 1 << 31)


def find_differences(path: str | os.PathLike[str], openvino: str | None = None) -> list[Difference]:
    """Return what OpenVINO computes differently in an ONNX file; first what is refused.

    Args:
        path: the file, which hami_model_check.onnx.read_onnx has accepted.
        openvino: version of OpenVINO; None: the installed one.

    Raises:
        ValueError, OSError: as hami_model_check.graph.read_graph.
    """
    return differences_of(read_graph(path), openvino_version(openvino))


def openvino_version(version: str | None = None) -> Version:
    """Return the first two numbers of a version of OpenVINO, None: the installed one; an unknown one counts as new."""
    numbers = re.findall(r"\d+", version or installed_version() or "9998")
    return tuple(int(number) for number in numbers[:2])


def differences_of(graph: Graph, version: Version) -> list[Difference]:
    found: dict[tuple[str, str], Difference] = {}
    for difference in _all(graph, version):
        key = (difference.operator, difference.what)
        known = found.get(key)
        found[key] = difference if known is None else known._replace(nodes=known.nodes + 1)
    return sorted(found.values(), key=lambda difference: not difference.refused)


def _all(graph: Graph, version: Version) -> Iterator[Difference]:
    opset = graph.opsets.get("", 0)
    yield from _of_the_file(graph, opset)
    by_operator: dict[str, list[Rule]] = {}
    for rule in RULES:
        if rule.versions[0] <= version < rule.versions[1]:
            for operator in rule.operators:
                by_operator.setdefault(operator, []).append(rule)
    for top in (graph.main, *graph.functions):
        for body, types in typed_bodies(top):
            for node in body.own_nodes:
                if node.domain:
                    continue
                for rule in by_operator.get(node.op_type, ()):
                    if rule.since <= node.opset <= rule.until and rule.condition(node, types):
                        yield Difference(
                            node.op_type, node.name, node.opset, rule.what, rule.instead, bool(rule.instead)
                        )
    yield from _of_large_constants(graph, opset)


def _of_the_file(graph: Graph, opset: int) -> Iterator[Difference]:
    if opset > NEWEST_OPSET:
        yield Difference(
            "model",
            "",
            opset,
            f"opset {opset} is newer than {NEWEST_OPSET}, the newest one that this version knows; OpenVINO reads it as "
            "an older one",
            f"export the model for opset {NEWEST_OPSET} or older",
            True,
        )
    if graph.ir_version > NEWEST_IR:
        yield Difference(
            "model",
            "",
            opset,
            f"IR version {graph.ir_version} is newer than {NEWEST_IR}, the newest one that this version knows",
            f"save the model with IR version {NEWEST_IR} or older",
            True,
        )


# Operators for which a constant beyond 32 bits is a limit, so that the largest value of 32 bits serves as well: inputs
# by index. _PASSING hand a constant on.
_LIMITS = {
    "Slice": (1, 2),
    "Clip": (1, 2),
    "Min": (0, 1),
    "Max": (0, 1),
    "Less": (0, 1),
    "Greater": (0, 1),
    "LessOrEqual": (0, 1),
    "GreaterOrEqual": (0, 1),
}
_PASSING = {"Identity", "Unsqueeze", "Squeeze", "Reshape", "Concat", "Cast"}


def _of_large_constants(graph: Graph, opset: int) -> Iterator[Difference]:
    large: dict[str, int] = {}
    for body in graph.bodies():
        for name, constant in body.constants.items():
            _add_large(large, name, constant.values)
        for node in body.own_nodes:
            value = node.attributes.get("value")
            if node.op_type == "Constant" and node.outputs and isinstance(value, Constant):
                _add_large(large, node.outputs[0], value.values)
            if node.op_type == "Constant" and node.outputs:
                _add_large(large, node.outputs[0], [*node.integers("value_ints"), node.integer("value_int")])
    if not large:
        return
    for body in graph.bodies():
        for node in body.own_nodes:
            for index, name in enumerate(node.inputs):
                if name not in large or index in _LIMITS.get(node.op_type, ()):
                    continue
                if node.op_type in _PASSING and node.outputs:
                    large.setdefault(node.outputs[0], large[name])
                    continue
                yield _of_large(node.op_type, node.name, opset, large[name])
        for port in body.outputs:
            if port.name in large:
                yield _of_large("model", "", opset, large[port.name])


def _of_large(operator: str, node: str, opset: int, value: int) -> Difference:
    return Difference(
        operator,
        node,
        opset,
        f"uses the constant {value}, which becomes {min(max(value, _32_BITS[0]), _32_BITS[-1])}: OpenVINO computes "
        "int64 and uint64 in 32 bits",
        f"use a constant within 32 bits, or {ELSEWHERE}",
        True,
    )


def _add_large(large: dict[str, int], name: str, values: Iterable[int] | None) -> None:
    values = values or ()
    for value in (max(values, default=0), min(values, default=0)):
        if value not in _32_BITS:
            large.setdefault(name, value)
