"""import_mlserver: describes a model repository of MLServer as a file models.toml of this package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hami

from hami_serve.datatypes import DATATYPES
from hami_serve.source import MLSERVER_SETTINGS, mlserver_settings
from hami_serve.triton_import import Imported

ENGINES = {".onnx": "OnnxTensor", ".xml": "OpenvinoTensor", ".pt": "TorchModel", ".pts": "TorchModel"}  # by the file
MAX_SETTINGS = 1 << 20  # bytes
# Settings that are not mapped, and what comes nearest.
UNMAPPED = {
    "max_batch_time": "the batch size follows measured times",
    "parallel_workers": "`instance_num` of the node, or `hami serve --workers`",
    "warm_workers": "models are loaded before they are visible",
    "cache_enabled": "keep answers in front of the server",
}
DATATYPES_OF_CONTENT = {"str": "STRING"}  # of parameters.content_type: the model takes text


class _NotMapped(Exception):
    """A model that cannot be described; the text is the reason."""


def import_mlserver(folder: Path) -> Imported:
    """Describe the models of a repository. Model files stay where they are, and are named by absolute paths.

    Raises:
        ConfigError: The folder has no model with a model-settings.json.
    """
    files = mlserver_settings(folder)
    if not files:
        raise hami.ConfigError(
            f'"{folder}" is not a model repository of MLServer: neither it nor a folder in it has a {MLSERVER_SETTINGS}'
        )
    found = Imported()
    for file in files:
        name = file.parent.name
        try:
            settings = _read(file)
            name = _text(settings, "name") or name
            if name in found.components:
                raise _NotMapped("another model has this name; rename one of them")
            found.add(name, _component(file, settings))
        except (_NotMapped, OSError) as reason:
            found.leave_out(name, reason)
            continue
        found.notes += [
            f'{name}: "{key}" is not mapped; {nearest}' for key, nearest in UNMAPPED.items() if key in settings
        ]
    return found


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_SETTINGS + 1)
        settings = json.loads(data) if len(data) <= MAX_SETTINGS else None
    except (OSError, ValueError, RecursionError) as error:
        raise _NotMapped(f'"{file}" cannot be read: {error}') from None
    if not isinstance(settings, dict):
        raise _NotMapped(f'"{file}" is not an object of JSON of at most {MAX_SETTINGS} bytes')
    return settings


def _text(settings: dict[str, Any], key: str) -> str:
    value = settings.get(key)
    if value is not None and not isinstance(value, str):
        raise _NotMapped(f'"{key}" is a text, got {value!r:.80}')
    return value or ""


def _component(file: Path, settings: dict[str, Any]) -> dict[str, Any]:
    parameters = settings.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise _NotMapped(f'"parameters" is an object, got {parameters!r:.80}')
    implementation = _text(settings, "implementation")
    node: dict[str, Any] = {
        "backend": "",
        "model": str(_model_file(file.parent, _text(parameters, "uri"), implementation)),
    }
    node["backend"] = ENGINES[Path(node["model"]).suffix]
    size = settings.get("max_batch_size")
    if type(size) is int and size > 1:
        node["max"] = size
    table: dict[str, Any] = {"source": node}
    if version := _text(parameters, "version"):
        table = {"version": version, **table}
    return {**table, **{key: ports for key in ("inputs", "outputs") if (ports := _ports(settings.get(key), key))}}


def _model_file(folder: Path, uri: str, implementation: str) -> Path:
    """Return the file of a model that an engine of HAMi can run."""
    known = ", ".join(ENGINES)
    write = f"{implementation or 'its class'} runs in Python: write a backend for it, or export the model to ONNX"
    if not uri:
        raise _NotMapped(f'it has no "uri" of a file {known}; {write}')
    if "://" in uri and not uri.startswith("file://"):
        raise _NotMapped(f'the uri "{uri}" is not a file of this machine; download it first')
    path = folder / uri.removeprefix("file://")
    if path.is_dir():
        path = next((each for suffix in ENGINES for each in sorted(path.glob(f"*{suffix}"))), path)
    if path.suffix not in ENGINES:
        raise _NotMapped(f'the model file "{path}" is none of {known}; {write}')
    if not path.is_file():
        raise _NotMapped(f'the model file "{path}" does not exist')
    return path.absolute()


def _ports(given: Any, key: str) -> list[dict[str, Any]]:
    """Return the inputs or outputs that the settings declare."""
    if given is None:
        return []
    ports = [_port(each) for each in given] if isinstance(given, list) and all(map(_is_port, given)) else None
    if ports is None:
        raise _NotMapped(f'an entry of "{key}" has a name, a datatype and a shape, got {given!r:.80}')
    wrong = next((port["datatype"] for port in ports if port["datatype"] not in {*DATATYPES, "STRING"}), None)
    if wrong is not None:
        raise _NotMapped(f'"{key}" has the datatype {wrong!r:.80}; known: {", ".join(DATATYPES)}')
    return ports


def _is_port(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("parameters") or {}, dict):
        return False
    name, datatype, shape = (entry.get(key) for key in ("name", "datatype", "shape"))
    sizes = isinstance(shape, list) and all(type(size) is int for size in shape)
    return isinstance(name, str) and isinstance(datatype, str) and sizes


def _port(entry: Any) -> dict[str, Any]:
    content = str((entry.get("parameters") or {}).get("content_type"))
    datatype = entry["datatype"]
    if datatype == "BYTES":
        datatype = DATATYPES_OF_CONTENT.get(content, datatype)
    return {"name": entry["name"], "datatype": datatype, "shape": list(entry["shape"])}
