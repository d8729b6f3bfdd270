"""The layers of an ONNX file for `hami graph`: its modules as boxes, and the tensors between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import hami
from hami_model_check.graph import Body, Node, Port, read_graph

_LEVELS = 2  # of a module's path that make boxes of their own, such as model.22 and cv2 in /model.22/cv2/conv/Conv
_HIDDEN = {"Constant", "Identity"}


def model_layers(path: str) -> dict[str, Any]:
    """Return the modules of a model in the order in which they run, and the edges between them.

    Exporters name a node after its module, as in `/encoder/layer.0/attention/MatMul`. Nodes of one module that follow
    each other are one box, so that no edge leads back.

    Returns:
        {"nodes": {name: [operator, …]}, "edges": [[from, to, label], …]}; inputs and outputs are nodes too.

    Raises:
        hami.ConfigError: The file cannot be read.
    """
    try:
        body = read_graph(path).main
    except (OSError, ValueError) as error:
        raise hami.ConfigError(f"{path} cannot be read as an ONNX model: {error}") from error
    nodes: dict[str, list[str]] = {}
    maker: dict[str, str] = {}  # of each tensor
    for port in body.inputs:
        if port.name not in body.constants:
            maker[port.name] = _added(nodes, f"input {port.name}", [])
    edges: dict[tuple[str, str], str] = {}
    last, module = "", None
    for node in body.own_nodes:
        if node.op_type in _HIDDEN:
            maker.update(
                {name: maker[node.inputs[0]] for name in node.outputs if node.inputs and node.inputs[0] in maker}
            )
            continue
        own = _module_of(node)
        if not last or own is None or own != module:
            last = _added(nodes, own or node.name or node.op_type, [])
        module = own
        nodes[last].append(node.op_type)
        for name in _used(node):
            if name in maker and maker[name] != last:
                edges.setdefault((maker[name], last), _shown(body, name))
        maker.update(dict.fromkeys(node.outputs, last))
    for port in body.outputs:
        end = _added(nodes, f"output {port.name}", [])
        if port.name in maker:
            edges[maker[port.name], end] = _shape(port)
    return {"nodes": nodes, "edges": [[*pair, label] for pair, label in edges.items()]}


def _module_of(node: Node) -> str | None:
    """Return the path of the module of a node, without its last part, the operator; None if the name has none."""
    parts = [part for part in re.split(r"/+", node.name) if part][:-1]
    return "/".join(parts[:_LEVELS]) or None


def _used(node: Node) -> Iterator[str]:
    """Yield what a node and its subgraphs read."""
    yield from node.inputs
    for value in node.attributes.values():
        if isinstance(value, Body):
            for inner in value.bodies():
                for each in inner.own_nodes:
                    yield from each.inputs


def _added(nodes: dict[str, list[str]], name: str, operators: list[str]) -> str:
    """Add a box, with a number where the name is taken, and return its name."""
    count, unique = 1, name
    while unique in nodes:
        count += 1
        unique = f"{name} ({count})"
    nodes[unique] = operators
    return unique


def _shown(body: Body, name: str) -> str:
    port = body.ports.get(name)
    return _shape(port) if port is not None else ""


def _shape(port: Port) -> str:
    return "" if port.shape is None else " x ".join("?" if size is None else str(size) for size in port.shape)
