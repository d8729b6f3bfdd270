"""Compares required packages with the installed ones: `requires = ["hami-trt>=2.0"]`, needs of a plugin."""

from __future__ import annotations

import importlib.metadata as metadata
import re

from hami import _core
from hami._plugins.index import normalised
from hami._plugins.versions import parse_requirement, satisfies


def problem_with(entry: object) -> str | None:
    """Return what is wrong with one entry, None if it is met."""
    try:
        if not isinstance(entry, str):
            raise ValueError(entry)
        name, bounds = parse_requirement(entry)
    except ValueError:
        return f'requires takes a package and version bounds, as "hami-trt>=0.3,<2", got {entry!r}'
    version = _installed_version(name)
    if version is None:
        return f'requires {entry}, which is not installed: pip install "{entry}"'
    try:
        if satisfies(version, bounds):
            return None
    except ValueError:
        return f"requires {entry}, but the version of the installed {name} cannot be compared: {version}"
    return f'requires {entry}, but {name} {version} is installed: pip install "{entry}"'


def needs_of(distribution: str) -> str:
    """Return what a distribution needs with what is there: `hami-core>=0.1 (0.1.0), onnxruntime>=1.20 (not installed)`.

    Needs under a condition, such as those of an extra, are left out.
    """
    try:
        declared = metadata.requires(distribution) or []
    except Exception:  # a plugin without metadata, or a leftover folder
        return ""
    needs = (re.sub(r"\[[^]]*\]|\s", "", text) for text in declared if ";" not in text)
    return ", ".join(f"{need} ({_installed_version(_name_of(need)) or 'not installed'})" for need in needs)


def _name_of(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]


def _installed_version(name: str) -> str | None:
    if normalised(name) == "hami-core":  # the running version, regardless of other metadata
        return _core.__version__
    try:
        return metadata.version(name) or None
    except Exception:  # not there, or a leftover folder without metadata
        return None
