"""Compares required packages with installed ones: for the key `requires`, and for `hami doctor`."""

from __future__ import annotations

import importlib.metadata as metadata
import re

from hami import _core
from hami._plugins.plugin import CORE, normalised
from hami._plugins.versions import parse_requirement, satisfies


def problem_with(entry: object) -> str | None:
    """Return the problem with one entry of `requires`; None if the requirement is met."""
    try:
        if not isinstance(entry, str):
            raise ValueError(entry)
        name, bounds = parse_requirement(entry)
    except ValueError:
        return f'requires takes a package name with version bounds, such as "hami-trt>=2.0,<3", got {entry!r}'
    version = _installed_version(name)
    if version is None:
        return f'requires {entry}, which is not installed: pip install "{entry}"'
    try:
        if satisfies(version, bounds):
            return None
    except ValueError:
        return f"requires {entry}, but the installed {name} has a version that cannot be compared: {version}"
    return f'requires {entry}, but {name} {version} is installed: pip install "{entry}"'


def requirements_of(distribution: str) -> str:
    """Return the requirements of a distribution with the installed versions: "hami-core>=2.0 (2.0.0), numpy (2.1.0)".

    Conditional requirements, such as those of an extra, are omitted.
    """
    try:
        declared = metadata.requires(distribution) or []
    except Exception:  # a plugin without metadata, or a leftover folder
        return ""
    requirements = (re.sub(r"\[[^]]*\]|\s", "", text) for text in declared if ";" not in text)
    return ", ".join(f"{one} ({_installed_version(_name_of(one)) or 'not installed'})" for one in requirements)


def _name_of(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]


def _installed_version(name: str) -> str | None:
    if normalised(name) == CORE:  # the running version; metadata may be of another one
        return _core.__version__
    try:
        return metadata.version(name) or None
    except Exception:  # not installed, or a leftover folder without metadata
        return None
