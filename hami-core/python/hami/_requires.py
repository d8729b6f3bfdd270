"""Checks `requires = ["hami-trt>=0.3"]` against what is installed."""

from __future__ import annotations

import importlib.metadata as metadata

from hami import _core
from hami._plugin_index import normalised
from hami._versions import parse_requirement, satisfies


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


def _installed_version(name: str) -> str | None:
    if normalised(name) == "hami-core":  # what runs, whatever metadata lies about
        return _core.__version__
    try:
        return metadata.version(name) or None
    except Exception:  # not there, or a leftover folder without metadata
        return None
