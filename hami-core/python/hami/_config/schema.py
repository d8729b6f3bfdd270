"""A JSON schema of configuration files, made of what the registry knows: editors complete and check with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hami._plugins.manager import BackendInfo

DRAFT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_WORDS = "|".join("".join(f"[{c}{c.upper()}]" for c in word) for word in ("true", "false", "yes", "no", "on", "off"))
# What the core reads as text for each type. A text with ${…} in it may become anything.
_TEXTS = {
    "bool": rf"^\s*({_WORDS}|0|1)\s*$|\$\{{",
    "int": rf"^\s*{_NUMBER}\s*$|\$\{{",
    "float": rf"^\s*({_NUMBER}|[+-]?([iI][nN][fF]|[nN][aA][nN]))\s*$|\$\{{",
    "duration": rf"^\s*({_NUMBER}\s*([hH]|[mM][iI][nN]|[sS]|[mM][sS]|[uU][sS])|0+(\.0*)?)\s*$|\$\{{",
    "milliseconds": rf"^\s*{_NUMBER}\s*([hH]|[mM][iI][nN]|[sS]|[mM][sS]|[uU][sS])?\s*$|\$\{{",
    "bytesize": rf"^\s*{_NUMBER}\s*([kKmMgGtT]?([iI]?[bB])?)\s*$|\$\{{",
}
_NUMBERS = {"int": "integer", "float": "number", "duration": "number", "milliseconds": "number", "bytesize": "integer"}
_REFERENCE = {"type": "string", "pattern": r"\$\{"}
_VALUE = {"$ref": "#/$defs/value"}
_LIST_OF_TEXT = {"type": "array", "items": {"type": "string"}}
_EXPRESSION = {"type": "string", "minLength": 1}
_OPEN = {"anyOf": [_VALUE, {"$ref": "#/$defs/table"}]}


def schema_of(backends: Iterable[BackendInfo]) -> Schema:
    """Return the schema of files that use these backends. Those whose parameters are not known are left open."""
    known = [backend for backend in backends if backend.params is not None]
    top, keys, tables = _top_level(), _keys(known), _tables(known)
    reserved = dict.fromkeys(top, True)
    return {
        "$schema": DRAFT,
        "title": "A pipeline of HAMi",
        "type": "object",
        "properties": top,
        "anyOf": [
            {
                "title": "nodes, each a table",
                "propertyNames": {"pattern": "^[A-Za-z0-9_-]+$"},
                "properties": reserved,
                "additionalProperties": {"$ref": "#/$defs/node"},
            },
            {
                "title": "the keys of a single node",
                "properties": {**keys, **reserved},
                "additionalProperties": _VALUE,
            },
        ],
        "$defs": {
            "value": {"anyOf": [{"type": ["string", "number", "boolean"]}, {"type": "array", "items": _VALUE}]},
            "table": {"type": "object", "additionalProperties": _OPEN},
            "node": {"type": "object", "properties": {**tables, **keys}, "additionalProperties": _OPEN},
            **{f"{backend.name}()": _table(backend) for backend in known if backend.params},
        },
    }


def _top_level() -> Schema:
    entrypoint = "the expression that requests enter by"
    return {
        "global": {"description": "keys for all nodes", "$ref": "#/$defs/node"},
        "providers": {
            "description": "backend = distribution, where two plugins have it",
            "type": "object",
            "additionalProperties": {"type": "string"},
        },
        "requires": {"description": 'packages with bounds, as "hami-onnx>=0.1"', **_LIST_OF_TEXT},
        "extends": {
            "description": "a file that this one is laid over, the name of a packaged pipeline, or a list of them",
            "anyOf": [_EXPRESSION, _LIST_OF_TEXT],
        },
        "entrypoint": {"description": f"{entrypoint}; one node", **_EXPRESSION},
        "dag_entrypoint": {"description": f"{entrypoint}; several nodes", **_EXPRESSION},
    }


def _keys(backends: list[BackendInfo]) -> Schema:
    """Return the schema of each key of a node that is a value: parameters, and what nodes have of their own."""
    owners: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for backend in backends:
        for param in backend.params or []:
            owners.setdefault(param["name"], []).append((backend.name, param))
            owners.setdefault(f"{backend.name}.{param['name']}", []).append((backend.name, param))
    keys = {name: _one_of(found) for name, found in owners.items()}
    init = {"description": "the expression that makes the node", **_EXPRESSION}
    keys |= {
        "backend": {"description": "the expression of the node", **_EXPRESSION},
        "node_entrypoint": init,
        "init": {**init, "description": "the same as node_entrypoint"},
        "next": {
            "description": 'the nodes that follow: "b,c" or ["b", "c"]',
            "anyOf": [{"type": "string"}, _LIST_OF_TEXT],
        },
        "map": {"description": 'where its keys come from: "src[result:data],other[result:boxes]"', "type": "string"},
        "or": {
            "description": "runs only on requests that its predecessor left without result and without error",
            "anyOf": _type_of({"type": "bool", "choices": []}),
        },
    }
    return dict(sorted(keys.items()))


def _tables(backends: list[BackendInfo]) -> Schema:
    return {backend.name: {"$ref": f"#/$defs/{backend.name}()"} for backend in backends if backend.params}


def _table(backend: BackendInfo) -> Schema:
    """Return the schema of a sub-table [node.X]."""
    params = {param["name"]: _one_of([(backend.name, param)]) for param in backend.params or []}
    description = (backend.doc or "").partition("\n")[0] or f"parameters of {backend.name}"
    return {"description": description, "type": "object", "properties": params, "additionalProperties": False}


def _one_of(owners: list[tuple[str, dict[str, Any]]]) -> Schema:
    """Return the schema of a key that one or more backends declare: right for one of them is right."""
    lines = [f"{name}({param['text']})" + (f": {param['help']}" if param["help"] else "") for name, param in owners]
    types: list[Schema] = []
    for _, param in owners:
        types += [one for one in _type_of(param) if one not in types]
    made: Schema = {"description": "\n".join(lines), "anyOf": types}
    if len(owners) == 1 and isinstance(owners[0][1]["default"], (bool, int, float, str)):
        made["default"] = owners[0][1]["default"]
    return made


def _type_of(param: dict[str, Any]) -> list[Schema]:
    """Return what a value may be, any of these; as weakly typed as the core."""
    kind, choices = param["type"], param["choices"]
    if kind == "list":
        items: Schema = {"enum": choices} if choices else _VALUE
        return [{"type": "array", "items": items}, {"type": "string"}]
    if choices:
        numbers = [int(choice) for choice in choices] if kind == "int" else []
        return [{"enum": [*choices, *numbers]}, _REFERENCE]
    if kind == "bool":
        return [{"type": "boolean"}, {"enum": [0, 1]}, {"type": "string", "pattern": _TEXTS[kind]}]
    if kind not in _NUMBERS:
        return [{"type": ["string", "number", "boolean"]}]
    number: Schema = {"type": _NUMBERS[kind]}
    if kind in ("duration", "milliseconds", "bytesize"):
        number["minimum"] = 0
    if kind == "duration":  # a number without a unit says nothing
        return [{"const": 0}, {"type": "string", "pattern": _TEXTS[kind]}]
    for bound, name in (("least", "minimum"), ("most", "maximum")):
        if param[bound] is not None:
            number[name] = param[bound]
    return [number, {"type": "string", "pattern": _TEXTS[kind]}]
