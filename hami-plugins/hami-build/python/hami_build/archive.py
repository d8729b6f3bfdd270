"""Checks a wheel as an archive: name, top-level folder, licence, bill of materials, entry points."""

from __future__ import annotations

import ast
import importlib.metadata
import os
from collections.abc import Mapping
from pathlib import Path

from hami_build import sbom, wheel_file

Check = tuple[str, bool, str]


def file_name(wheel: Path, files: Mapping[str, bytes]) -> Check:
    """The file name agrees with the tags inside; it does not if the wheel was renamed."""
    python, abi, platforms = wheel.stem.split("-")[-3:]
    named = {f"{python}-{abi}-{platform}" for platform in platforms.split(".")}
    inside = tags(files)
    return "file name", named == inside, "-".join([python, abi, platforms]) if named == inside else " ".join(inside)


def tags(files: Mapping[str, bytes]) -> set[str]:
    """Return the tags that the file WHEEL has."""
    lines = files[f"{wheel_file.info_folder(files)}/WHEEL"].decode().splitlines()
    return {line.removeprefix("Tag: ") for line in lines if line.startswith("Tag: ")}


def top_level_names(files: Mapping[str, bytes], own: str) -> Check:
    """The wheel has one top-level folder: removing one of two wheels that share a folder damages the other."""
    names = sorted({name.partition("/")[0] for name in files} - {wheel_file.info_folder(files)})
    return "top-level names", names == [own] if own else len(names) == 1, ", ".join(names)


def licences(files: Mapping[str, bytes]) -> Check:
    metadata, info = wheel_file.metadata(files), wheel_file.info_folder(files)
    named = metadata.get_all("License-File") or []
    missing = [name for name in named if f"{info}/licenses/{name}" not in files]
    if missing or not named or not metadata["License-Expression"]:
        return "licence", False, f"missing: {', '.join(missing) or 'License-File or License-Expression in METADATA'}"
    return "licence", True, f"{metadata['License-Expression']}, {', '.join(named)}"


def bill_of_materials(files: Mapping[str, bytes]) -> Check:
    title = "bill of materials"
    folder = f"{wheel_file.info_folder(files)}/sboms/"
    found = [name for name in files if name.startswith(folder)]
    if len(found) != 1:
        return title, False, f"{len(found)} files in {folder}, expected 1"
    text = files[found[0]].decode()
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        return title, False, f"not valid CycloneDX: {str(error.data).splitlines()[0]}"
    metadata = wheel_file.metadata(files)
    about, parts = sbom.summary(text)
    same = about == f"{metadata['Name']} {metadata['Version']}"
    return title, same, f"{about}; contains {', '.join(parts) or 'no third-party code'}"


def declared_entry_points(files: Mapping[str, bytes]) -> list[str]:
    """Return each target, as `module` or `module:attribute`."""
    return sorted({target for targets in entry_point_groups(files).values() for target in targets})


def searched_entry_points(files: Mapping[str, bytes]) -> list[str]:
    """Return the targets that the core imports to find backends, so without what the package needs to run them.

    The groups of other packages are theirs: these import a target when it is used.
    """
    groups = entry_point_groups(files).items()
    ours = [targets for group, targets in groups if group == "console_scripts" or group.split(".")[0] == "hami"]
    return sorted({target for targets in ours for target in targets})


def entry_point_groups(files: Mapping[str, bytes]) -> dict[str, list[str]]:
    """Return the targets of each group."""
    return {group: list(entries.values()) for group, entries in entry_points(files).items()}


def entry_points(files: Mapping[str, bytes]) -> dict[str, dict[str, str]]:
    """Return the names and targets of each group, as Python finds them once the wheel is installed."""
    groups: dict[str, dict[str, str]] = {}
    for entry in _Installed(files).entry_points:
        groups.setdefault(entry.group, {})[entry.name] = entry.value
    return groups


class _Installed(importlib.metadata.Distribution):
    """The wheel as if it was installed."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def read_text(self, filename: str) -> str | None:
        content = self._files.get(f"{wheel_file.info_folder(self._files)}/{filename}")
        return None if content is None else content.decode()

    def locate_file(self, path: os.PathLike[str] | str) -> Path:
        return Path(path)


def defines(files: Mapping[str, bytes], module: str, attribute: str) -> bool:
    """Return whether `module` exists and has `attribute`: a name or, for a packaged pipeline, a file beside it."""
    path = module.replace(".", "/")
    if f"{path}/{attribute}" in files:
        return True
    source = files.get(f"{path}.py", files.get(f"{path}/__init__.py"))
    if source is None:
        return False
    names = set()
    for statement in ast.parse(source, f"{path}.py").body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            names.add(statement.name)
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name for alias in statement.names}
        elif isinstance(statement, ast.Assign):
            names |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return not attribute or attribute in names
