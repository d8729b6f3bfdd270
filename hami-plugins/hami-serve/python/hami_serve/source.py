"""Reads what describes the components: a file, a model repository (a folder), or a mapping."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hami
import hami.config
from hami.config import parse_toml

from hami_serve.datatypes import DATATYPES, MAX_ELEMENTS, TEXT
from hami_serve.model import Stamp, TensorSpec, Version

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
VERSION_KEYS = ("source", "inputs", "outputs", "memory", "warmup", "decoupled")
COMPONENT_KEYS = (*VERSION_KEYS, "version", "versions", "default", "weights", "aliases")
INDEX = "models.toml"  # in a folder: describes the whole repository
OPTIONS = "model.toml"  # in the folder of a component: everything except its versions
TRITON_CONFIG = "config.pbtxt"  # in the folder of a model of Triton
MAX_WEIGHT = 10**9  # of a version; sums of weights stay exact
MLSERVER_SETTINGS = "model-settings.json"  # of a model in a repository of MLServer
MAX_FILE = 16 << 20  # bytes; the same as for a configuration of hami.pipe
MAX_EXTENDS = 50  # files that extend each other


@dataclass(frozen=True)
class ComponentSpec:
    """What a configuration says about one component."""

    versions: dict[str, Version]
    default: str | None = None
    weights: dict[str, float] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()


def read_components(source: Any) -> dict[str, ComponentSpec]:
    """Return the components that a source describes.

    Args:
        source: The path of a file such as "models.toml", a folder, a mapping from component name to what `hami.pipe`
            takes, or None for no components.

    Raises:
        ConfigError: The source is wrong, or cannot be read.
    """
    if source is None:
        return {}
    if isinstance(source, Mapping):
        return _components(source, Path())
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if path.is_dir():
            return read_folder(path)
        if path.suffix != ".toml":
            raise hami.ConfigError(f'"{path}" is neither a folder nor a file that ends in .toml')
        return _components(_with_bases(path, []), path.parent)
    raise hami.ConfigError(f"the components are a path, a mapping of names, or None; got {type(source).__name__}")


def read_folder(folder: Path) -> dict[str, ComponentSpec]:
    """Return the components of a model repository.

    `NAME.toml` is a component of one version. A folder `NAME` is a component with the versions `1.toml`, `2.toml`, …,
    and `model.toml` for its options. `models.toml`, if it is there, describes the repository alone. In a folder without
    any of them, each model file such as `NAME.onnx` is a component.
    """
    found, errors = read_each(folder)
    for error in errors.values():
        raise error
    return found


def read_each(folder: Path) -> tuple[dict[str, ComponentSpec], dict[str, Exception]]:
    """Return the components of a model repository, and the errors of those whose description is wrong, by name.

    Raises:
        ConfigError: The folder or its "models.toml" cannot be read.
    """
    if (folder / INDEX).is_file():
        return _each(_with_bases(folder / INDEX, []), folder)
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise hami.ConfigError(f'the folder "{folder}" cannot be read: {error.strerror}') from error
    tables: dict[str, Any] = {}
    errors: dict[str, Exception] = {}
    for entry in entries:
        if entry.suffix == ".toml" and entry.is_file():
            name, table = entry.stem, {"source": str(entry)}
        elif entry.is_dir() and (versions := sorted(entry.glob("*.toml"))):
            name = entry.name
            try:
                table = _folder_of_component(entry, versions)
            except hami.ConfigError as error:
                errors[name] = error
                continue
        else:
            continue
        if name in tables:
            errors[name] = hami.ConfigError(f'"{name}" is both a file and a folder in "{folder}"; remove one of them')
        tables[name] = table
    if not tables and not errors:
        if triton_configs(folder):
            raise hami.ConfigError(
                f'"{folder}" is a model repository of Triton: run `hami import-triton {folder} --output models.toml`, '
                "and serve models.toml"
            )
        if mlserver_settings(folder):
            raise hami.ConfigError(
                f'"{folder}" is a model repository of MLServer: run `hami import-mlserver {folder} --output '
                "models.toml`, and serve models.toml"
            )
        for entry in entries:
            if hami.config.model_file(entry) and entry.is_file():
                if other := tables.get(entry.stem):
                    names = f'"{Path(other["source"]).name}" and "{entry.name}"'
                    errors[entry.stem] = hami.ConfigError(f'{names} in "{folder}" have one name; rename one of them')
                tables[entry.stem] = {"source": str(entry)}
    found, others = _each({name: table for name, table in tables.items() if name not in errors}, Path())
    return found, {**errors, **others}


def mlserver_settings(folder: Path) -> list[Path]:
    """Return the files with the settings of models of MLServer: in the folder itself, and in folders in it."""
    return sorted(
        path for path in (folder / MLSERVER_SETTINGS, *folder.glob(f"*/{MLSERVER_SETTINGS}")) if path.is_file()
    )


def triton_configs(folder: Path) -> list[Path]:
    """Return the configurations of the models in a repository of Triton; none: the folder is another one."""
    return sorted(path for path in folder.glob(f"*/{TRITON_CONFIG}") if path.is_file())


def _folder_of_component(folder: Path, files: Sequence[Path]) -> dict[str, Any]:
    options = _read(folder / OPTIONS) if (folder / OPTIONS).is_file() else {}
    for key in ("source", "versions", "version"):
        if key in options:
            raise hami.ConfigError(f'{folder / OPTIONS}: remove "{key}"; the versions are the files beside it')
    return {**options, "versions": {file.stem: {"source": str(file)} for file in files if file.name != OPTIONS}}


def _with_bases(path: Path, chain: list[Path]) -> dict[str, Any]:
    """Return the tables of a file, laid over those of the files that it extends."""
    if path.resolve() in chain or len(chain) >= MAX_EXTENDS:
        raise hami.ConfigError(f'"{path}" extends itself, or more than {MAX_EXTENDS} files extend each other')
    own = _read(path)
    extends = own.pop("extends", [])
    merged: dict[str, Any] = {}
    for name in [extends] if isinstance(extends, str) else extends:
        if not isinstance(name, str) or not name.endswith(".toml"):
            raise hami.ConfigError(f'{path}: extends takes files such as "base.toml", got {name!r}')
        base = path.parent / name
        tables = _with_bases(base, [*chain, path.resolve()])
        merged.update({key: _absolute(value, base.parent) for key, value in tables.items()})
    for key, value in own.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = {**merged[key], **value} if both else value
    return merged


def _read(path: Path) -> dict[str, Any]:
    text = _text_of(path)
    try:
        return parse_toml(text)
    except ValueError as error:
        raise hami.ConfigError(f"{path}: {error}; a configuration file must be TOML") from error


def _text_of(path: Path) -> str:
    """Return the text of a regular file; a pipe or a device may block or have no end."""
    try:
        if not path.is_file():
            raise hami.ConfigError(f'no such file: "{path}"')
        if path.stat().st_size > MAX_FILE:
            raise hami.ConfigError(f'"{path}" is larger than {MAX_FILE >> 20} MiB')
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise hami.ConfigError(f'"{path}" cannot be read: {error}') from error


def _components(tables: Mapping[Any, Any], folder: Path) -> dict[str, ComponentSpec]:
    found, errors = _each(tables, folder)
    for error in errors.values():
        raise error
    return found


def _each(tables: Mapping[Any, Any], folder: Path) -> tuple[dict[str, ComponentSpec], dict[str, Exception]]:
    """Return the components of tables, and the errors of those that are wrong."""
    found: dict[str, ComponentSpec] = {}
    errors: dict[str, Exception] = {}
    for name, value in tables.items():
        try:
            found[checked_name(name)] = component_of(name, value, folder)
        except hami.ConfigError as error:
            errors[str(name)] = error
    return found, errors


def component_of(name: str, value: Any, folder: Path = Path()) -> ComponentSpec:
    """Return the component that a table, or what `hami.pipe` takes, describes."""
    if isinstance(value, ComponentSpec):
        return value
    if not (isinstance(value, Mapping) and ("source" in value or "versions" in value)):
        return ComponentSpec({"1": version_of(name, value, folder)})
    check_keys(name, value, COMPONENT_KEYS)
    table = dict(value)
    shared = {key: table[key] for key in VERSION_KEYS if key in table and key != "source"}
    if "versions" in table:
        if "source" in table or "version" in table:
            raise hami.ConfigError(f'component "{name}": give either "versions", or "source" and "version"')
        given = table["versions"]
        if not isinstance(given, Mapping) or not given:
            raise hami.ConfigError(f'component "{name}": versions is a table such as {{1 = "a.toml"}}, got {given!r}')
        versions = {str(key): each for key, each in given.items()}
    else:
        versions = {str(table.get("version", "1")): {"source": table["source"]}}
    aliases = table.get("aliases", [])
    if not isinstance(aliases, (list, tuple)) or not all(isinstance(alias, str) for alias in aliases):
        raise hami.ConfigError(f'component "{name}": aliases is a list of names, got {aliases!r}')
    weights = table.get("weights", {})
    if not isinstance(weights, Mapping):
        raise hami.ConfigError(f'component "{name}": weights is a table such as {{1 = 3, 2 = 1}}, got {weights!r}')
    return ComponentSpec(
        versions={
            checked_name(key, "version"): version_of(name, each, folder, shared) for key, each in versions.items()
        },
        default=str(table["default"]) if "default" in table else None,
        weights={str(key): weight for key, weight in weights.items()},
        aliases=tuple(map(checked_name, aliases)),
    )


def version_of(name: str, value: Any, folder: Path = Path(), shared: Mapping[str, Any] | None = None) -> Version:
    """Return one version; `shared` are the options of its component."""
    table = {"source": value}
    if isinstance(value, Mapping) and "source" in value:
        check_keys(name, value, VERSION_KEYS)
        table = dict(value)
    table = {**(shared or {}), **table}
    source = _absolute(table["source"], folder)
    return Version(
        source=source,
        stamp=_stamp(source),
        inputs=_specs(name, "inputs", table.get("inputs", ()), folder),
        outputs=_specs(name, "outputs", table.get("outputs", ()), folder),
        memory=_count(name, "memory", table.get("memory", 0)),
        warmup=_count(name, "warmup", table.get("warmup", 0)),
        decoupled=_flag(name, "decoupled", table.get("decoupled", False)),
    )


def check_keys(name: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    if unknown := [key for key in table if key not in known]:
        raise hami.ConfigError(
            f'component "{name}": unknown key "{unknown[0]}"; known: {", ".join(known)}; '
            'the keys of a pipeline are in a table of their own: source = {backend = "…"}'
        )


def misplaced(source: Any, error: hami.ConfigError) -> str | None:
    """Return the key of a component that is among those of its pipeline, if that is the mistake that an error names.

    A backend may have a parameter with such a name.
    """
    if not isinstance(source, Mapping):
        return None
    text = str(error)
    return next((key for key in COMPONENT_KEYS if key in source and (f'"{key}"' in text or f"[{key}]" in text)), None)


def _stamp(source: Any) -> Stamp | None:
    """Return the stamp of the file that a source is; None if there is none that can be read; `hami.pipe` says why."""
    model = hami.config.model_file(source)
    if not model and not (isinstance(source, os.PathLike) or (isinstance(source, str) and source.endswith(".toml"))):
        return None
    try:
        path = Path(source)
        if not path.is_file():
            return None
        status = path.stat()
        if model:  # gigabytes are not read for this
            return Stamp(f"{status.st_size} bytes, {status.st_mtime_ns}", status.st_ino, status.st_mtime_ns)
        return Stamp(hashlib.sha256(path.read_bytes()).hexdigest(), status.st_ino, status.st_mtime_ns)
    except OSError:
        return None


def _count(name: str, key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise hami.ConfigError(f'component "{name}": {key} is an int of 0 or more, got {value!r}')
    return value


def _flag(name: str, key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise hami.ConfigError(f'component "{name}": {key} is true or false, got {value!r}')
    return value


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and -1 <= size <= MAX_ELEMENTS


def _specs(name: str, key: str, value: Any, folder: Path) -> tuple[TensorSpec, ...]:
    if not isinstance(value, (list, tuple)):
        raise hami.ConfigError(f'component "{name}": {key} is a list of tables, got {value!r}')
    found = []
    for table in value:
        if isinstance(table, TensorSpec):
            found.append(table)
            continue
        if isinstance(table, str):
            table = {"name": table}
        if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
            raise hami.ConfigError(
                f'component "{name}": an entry of {key} is a table such as '
                f'{{name = "x", datatype = "FP32", shape = [-1, 4]}}, got {table!r}'
            )
        if not table["name"].isascii() and table["name"].encode("utf-8", "replace").decode() != table["name"]:
            raise hami.ConfigError(
                f'component "{name}": {key} has the name {table["name"]!a}, which is not valid Unicode'
            )
        datatype, shape = table.get("datatype", ""), table.get("shape", [-1])
        is_text = datatype == TEXT
        datatype = "BYTES" if is_text else datatype
        if not isinstance(datatype, str) or (datatype and datatype not in DATATYPES):
            raise hami.ConfigError(
                f'component "{name}": {key} "{table["name"]}" has the datatype {datatype!r}; '
                f"known: {', '.join(DATATYPES)}, {TEXT}"
            )
        if not isinstance(shape, (list, tuple)) or not all(map(_is_size, shape)):
            raise hami.ConfigError(
                f'component "{name}": {key} "{table["name"]}" has the shape {shape!r}; '
                "sizes are ints from -1 (any) to 2^48"
            )
        labels = _labels(name, table["name"], table.get("labels", ()), folder)
        found.append(TensorSpec(table["name"], datatype, tuple(shape), labels, is_text))
    if len({spec.name for spec in found}) != len(found):
        raise hami.ConfigError(f'component "{name}": two {key} have the same name')
    return tuple(found)


def _labels(name: str, tensor: str, value: Any, folder: Path) -> tuple[str, ...]:
    """Return the labels of classes: a list, or a text file with one in each line."""
    if isinstance(value, str):
        try:
            text = _text_of(folder / value).removeprefix("\ufeff").removesuffix("\n")
            return tuple(text.split("\n")) if text else ()
        except hami.ConfigError as error:
            raise hami.ConfigError(f'component "{name}": the labels of "{tensor}" cannot be read: {error}') from error
    if not isinstance(value, (list, tuple)) or not all(isinstance(label, str) for label in value):
        raise hami.ConfigError(f'component "{name}": labels of "{tensor}" are a file or a list of texts, got {value!r}')
    return tuple(value)


def check_routing(wanted: Mapping[str, ComponentSpec]) -> None:
    """Check the routing of components before anything is built for them."""
    names = dict.fromkeys(wanted, "a component")
    for name, spec in wanted.items():
        for version in [*([spec.default] if spec.default is not None else []), *spec.weights]:
            if version not in spec.versions:
                raise hami.ConfigError(
                    f'component "{name}" has no version "{version}"; versions: {", ".join(spec.versions)}'
                )
        for version, weight in spec.weights.items():
            if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight <= MAX_WEIGHT:
                raise hami.ConfigError(
                    f'component "{name}": the weight of version "{version}" is {weight!r}; it is from 0 to {MAX_WEIGHT}'
                )
        for alias in spec.aliases:
            if alias in names:
                raise hami.ConfigError(f'component "{name}": the alias "{alias}" is the name of {names[alias]} already')
            names[alias] = f'"{name}"'


def checked_name(name: Any, what: str = "component") -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        shown = repr(name)
        raise hami.ConfigError(
            f"the name of a {what} has 1 to 128 letters, digits, _, . and -, "
            f"got {shown if len(shown) <= 80 else shown[:77] + '…'}"
        )
    return name


def _absolute(source: Any, folder: Path) -> Any:
    """Return a source with its files relative to the current folder instead of `folder`."""
    if folder == Path():
        return source
    if isinstance(source, str) and (source.endswith(".toml") or hami.config.model_file(source)):
        return str(folder / source)
    if isinstance(source, Mapping):
        changed = dict(source)
        for key in ("extends", "source"):
            if key in changed:
                value = changed[key]
                many = isinstance(value, list)
                changed[key] = [_absolute(each, folder) for each in value] if many else _absolute(value, folder)
        if isinstance(changed.get("versions"), Mapping):
            changed["versions"] = {key: _absolute(each, folder) for key, each in changed["versions"].items()}
        return changed
    return source


def with_device(source: Any, nodes: Mapping[str, Any], device: str) -> Any:
    """Return a source in which the `nodes`, which take a device, have another one."""
    changes = {node: {"device": device} for node in nodes}
    if isinstance(source, Mapping):
        if any(isinstance(value, Mapping) for value in source.values()) or "extends" in source:
            return {**source, **{node: {**source.get(node, {}), **change} for node, change in changes.items()}}
        return {**source, "device": device}
    if model := hami.config.model_file(source):
        return {**hami.config.model_keys(model), "device": device}
    if isinstance(source, str) and not source.endswith(".toml") and list(nodes) == ["default"]:
        return {"backend": source, "device": device}
    return {"extends": str(source), **changes}
