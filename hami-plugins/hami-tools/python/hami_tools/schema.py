"""The command `hami schema`: a JSON schema of configuration files, with which editors complete and check them."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import hami
from hami.cli import json_of
from hami.packages import BackendInfo

DRAFT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_WORDS = "|".join("".join(f"[{c}{c.upper()}]" for c in word) for word in ("true", "false", "yes", "no", "on", "off"))
# The text that the core accepts for each type. A text with ${…} may resolve to any value.
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

_OBJECT = {"type": "object"}
_NODE = {"$ref": "#/$defs/node"}
_NODE_NAME = "^[A-Za-z0-9_-]+$"
_BACKEND = {"required": ["backend"]}
_EXPRESSIONS = ("backend", "node_entrypoint", "init")
_ANY_EXPRESSION = {"anyOf": [{"required": [key]} for key in _EXPRESSIONS]}
# Nodes may get `backend` from [global], from the top level, or from the configurations that the file extends.
_BACKEND_ELSEWHERE = {
    "anyOf": [
        {"required": ["extends"]},
        {"properties": {"global": _ANY_EXPRESSION}, "required": ["global"]},
        *({"properties": {key: {"type": "string"}}, "required": [key]} for key in _EXPRESSIONS),
    ]
}


def schema(arguments: argparse.Namespace) -> int:
    """Load every plugin, and print the schema or write it to a file; return 1 if a backend cannot be loaded."""
    backends = hami.backends(load=True).values()
    text = json_of(schema_of(backends), indent=2) + "\n"
    if arguments.output:
        Path(arguments.output).write_text(text, "utf-8")
    else:
        sys.stdout.write(text)
    missing = [f"{backend.name} ({backend.owner})" for backend in backends if backend.params is None]
    if missing:
        print(
            f"error: the schema lacks the parameters of backends that cannot be loaded: {', '.join(missing)}; "
            "for the reasons run: hami plugins --load",
            file=sys.stderr,
        )
    return 1 if missing else 0


def schema_of(backends: Iterable[BackendInfo]) -> Schema:
    """Return the schema of files that use these backends. Backends without known parameters accept any key.

    A file has a table for each node, and keys for all nodes at the top level; without a table, they are the keys of a
    single node. An editor marks a mistake at the key that is wrong: no alternative (anyOf) spans more than the value of
    one key.
    """
    known = [backend for backend in backends if backend.params is not None]
    top, keys, tables = _top_level(), _keys(known), _tables(known)
    reserved = dict.fromkeys(top, True)
    return {
        "$schema": DRAFT,
        "title": "HAMi configuration",
        "type": "object",
        "properties": {**{key: _node_or(schema, key) for key, schema in keys.items()}, **top},
        "patternProperties": {f"^(?!{_NODE_NAME[1:]})": {"not": _OBJECT}},
        "additionalProperties": {"if": _OBJECT, "then": _NODE, "else": _VALUE},
        "if": _BACKEND_ELSEWHERE,
        "else": {
            "properties": reserved,
            "additionalProperties": {"if": {**_OBJECT, "not": _ANY_EXPRESSION}, "then": _BACKEND},
            "if": {"properties": reserved, "additionalProperties": {"not": _OBJECT}},
            "then": _BACKEND,
        },
        "$defs": {
            "value": {"anyOf": [{"type": ["string", "number", "boolean"]}, {"type": "array", "items": _VALUE}]},
            "table": {"type": "object", "additionalProperties": _OPEN},
            "node": {"properties": {**tables, **keys}, "additionalProperties": _OPEN},
            **{f"{backend.name}()": _table(backend) for backend in known if backend.params},
        },
    }


def _node_or(schema: Schema, key: str) -> Schema:
    """Return the schema of a top-level key: a table is a node of that name, another value is for all nodes."""
    then = {"then": _NODE} if re.fullmatch(_NODE_NAME, key) else {}
    return {"description": schema["description"], "if": _OBJECT, **then, "else": schema}


def _top_level() -> Schema:
    entrypoint = "the expression that receives the requests"
    return {
        "global": {"description": "keys for all nodes", "type": "object", "$ref": "#/$defs/node"},
        "providers": {
            "description": "which distribution provides a backend that several plugins have: backend = distribution",
            "type": "object",
            "additionalProperties": {"type": "string"},
        },
        "requires": {"description": 'packages that must be installed, such as "hami-onnx>=2.0"', **_LIST_OF_TEXT},
        "extends": {
            "description": "a file or a packaged pipeline that this configuration extends, or a list of them",
            "anyOf": [_EXPRESSION, _LIST_OF_TEXT],
        },
        "entrypoint": {"description": f"{entrypoint}, if there is one node", **_EXPRESSION},
        "dag_entrypoint": {"description": f"{entrypoint}, if there are several nodes", **_EXPRESSION},
    }


def _keys(backends: list[BackendInfo]) -> Schema:
    """Return the schema of each key of a node that is not a table: parameters, and the keys of nodes themselves."""
    owners: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for backend in backends:
        for param in backend.params or []:
            for name in (param["name"], *param["aliases"]):
                owners.setdefault(name, []).append((backend.name, param))
                owners.setdefault(f"{backend.name}.{name}", []).append((backend.name, param))
    keys = {name: _one_of(found) for name, found in owners.items()}
    init = {"description": "the expression that builds the node", **_EXPRESSION}
    keys |= {
        "backend": {"description": "the expression that the node runs", **_EXPRESSION},
        "node_entrypoint": init,
        "init": {**init, "description": "the same as node_entrypoint"},
        "next": {
            "description": 'the nodes that follow: "b,c" or ["b", "c"]',
            "anyOf": [{"type": "string"}, _LIST_OF_TEXT],
        },
        "map": {
            "description": 'where the node takes its keys from: "src[result:data],other[result:boxes]"',
            "type": "string",
        },
        "accept_skipped": {
            "description": "with map: run even if a node before this one was skipped",
            "anyOf": _type_of({"type": "bool", "choices": []}),
        },
        "filter": {"description": "an expression that sets a bool: which requests the node runs", **_EXPRESSION},
        "otherwise": {
            "description": 'the requests for which filter is false: "pass" (default), "skip" or an expression',
            **_EXPRESSION,
        },
        "or": {
            "description": "run only if the predecessor set neither result nor error",
            "anyOf": _type_of({"type": "bool", "choices": []}),
        },
    }
    return dict(sorted(keys.items()))


def _tables(backends: list[BackendInfo]) -> Schema:
    return {backend.name: {"$ref": f"#/$defs/{backend.name}()"} for backend in backends if backend.params}


def _table(backend: BackendInfo) -> Schema:
    """Return the schema of a sub-table [node.X]."""
    params = {
        name: _one_of([(backend.name, param)])
        for param in backend.params or []
        for name in (param["name"], *param["aliases"])
    }
    description = (backend.doc or "").partition("\n")[0] or f"parameters of {backend.name}"
    return {"description": description, "type": "object", "properties": params, "additionalProperties": False}


def _one_of(owners: list[tuple[str, dict[str, Any]]]) -> Schema:
    """Return the schema of a key that one or more backends declare: it is valid if it is valid for one of them."""
    lines = [f"{name}({param['text']})" + (f": {param['help']}" if param["help"] else "") for name, param in owners]
    types: list[Schema] = []
    for _, param in owners:
        types += [each for each in _type_of(param) if each not in types]
    schema: Schema = {"description": "\n".join(lines), "anyOf": types}
    if len(owners) == 1 and isinstance(owners[0][1]["default"], (bool, int, float, str)):
        schema["default"] = owners[0][1]["default"]
    return schema


def _type_of(param: dict[str, Any]) -> list[Schema]:
    """Return the schemas of valid values; as in the core, text may represent a value of any type."""
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
    if kind == "duration":  # any other number needs a unit
        return [{"const": 0}, {"type": "string", "pattern": _TEXTS[kind]}]
    for bound, name in (("least", "minimum"), ("most", "maximum")):
        if param[bound] is not None:
            number[name] = param[bound]
    words = [{"const": "auto"}] if param.get("takes_auto") else []
    return [number, *words, {"type": "string", "pattern": _TEXTS[kind]}]
