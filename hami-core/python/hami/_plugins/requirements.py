"""Compares required packages with installed ones by PEP 440, as pip does: for the key `requires`, and `hami doctor`.

The package `packaging` is not a dependency of the core.
"""

from __future__ import annotations

import importlib.metadata as metadata
import math
import operator as operators
import re
from collections.abc import Callable
from typing import Any

from hami import _core
from hami._plugins.plugin import CORE, normalised

_VERSION = re.compile(
    r"""v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)
    (?:[-_.]?(?P<pre>alpha|beta|preview|pre|rc|a|b|c)[-_.]?(?P<pre_n>\d*))?
    (?:-(?P<post_only>\d+)|[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_n>\d*))?
    (?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_n>\d*))?
    (?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(.*?)\s*", re.S)
_BOUND = re.compile(r"\s*(~=|==|!=|<=|>=|<|>)\s*([^\s,]+)\s*")
_PRE = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operators.eq,
    "!=": operators.ne,
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}

Bounds = list[tuple[str, str]]


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


def parse_requirement(text: str) -> tuple[str, Bounds]:
    """Return the name and the bounds of a requirement such as "hami-trt>=2.0,<3".

    Raises ValueError for any other text, including one with extras.
    """
    found = _REQUIREMENT.fullmatch(text)
    if not found:
        raise ValueError(text)
    name, rest = found.groups()
    bounds: Bounds = []
    for part in rest.split(",") if rest else ():
        bound = _BOUND.fullmatch(part)
        if not bound:
            raise ValueError(text)
        operator, version = bound.groups()
        exact = operator in ("==", "!=")
        wildcard = exact and version.endswith(".*")
        limit = _parse(version[:-2] if wildcard else version)
        if wildcard and (_is_pre_release(limit) or limit["post"] >= 0 or limit["local"]):
            raise ValueError(text)
        if limit["local"] and not exact:
            raise ValueError(text)
        if operator == "~=" and len(limit["release"]) < 2:
            raise ValueError(text)
        bounds.append((operator, version))
    return name, bounds


def satisfies(version: str, bounds: Bounds) -> bool:
    """Return whether an installed version is within all bounds. Pre-releases are not excluded."""
    return all(_within(version, operator, bound) for operator, bound in bounds)


def _within(version: str, operator: str, bound: str) -> bool:
    if bound.endswith(".*"):
        return _starts_with(version, _parse(bound[:-2])) == (operator == "==")
    have, limit = _parse(version), _parse(bound)
    if not limit["local"]:
        have = {**have, "local": ""}
    if operator == "~=":
        series = {**limit, "release": limit["release"][:-1], "pre": None}
        return _key(have) >= _key(limit) and _starts_with(version, series)
    if operator == "<" and not _is_pre_release(limit):
        limit = {**limit, "dev": 0}  # <2.0 does not accept 2.0rc1, a pre-release of 2.0
    if operator == ">" and _is_post_release_of(have, limit):
        return False  # >2.0 does not accept 2.0.post1
    return _COMPARE[operator](_key(have), _key(limit))


def _parse(text: str) -> dict[str, Any]:
    found = _VERSION.fullmatch(text.strip())
    if not found:
        raise ValueError(text)
    part = found.groupdict()
    letter = (part["pre"] or "").lower()
    post = part["post_only"] or (part["post"] and (part["post_n"] or "0"))
    return {
        "epoch": int(part["epoch"] or 0),
        "release": [int(number) for number in part["release"].split(".")],
        "pre": (_PRE.get(letter, letter), int(part["pre_n"] or 0)) if letter else None,
        "post": int(post) if post else -1,
        "dev": int(part["dev_n"] or 0) if part["dev"] else math.inf,
        "local": _normalized_local(part["local"] or ""),
    }


def _key(parsed: dict[str, Any]) -> tuple[Any, ...]:
    """Return a sort key: 1.0.dev1 < 1.0a1 < 1.0rc1 < 1.0 < 1.0.post1; 1.0 and 1.0.0 are equal."""
    if parsed["pre"] is not None:
        pre = (1, *parsed["pre"])
    else:
        pre = (0,) if parsed["dev"] != math.inf and parsed["post"] < 0 else (2,)
    return parsed["epoch"], _trimmed(parsed["release"]), pre, parsed["post"], parsed["dev"], parsed["local"]


def _normalized_local(text: str) -> str:
    parts = re.split("[-_.]", text.lower())
    return ".".join(str(int(part)) if part.isdigit() else part for part in parts)


def _trimmed(release: list[int]) -> list[int]:
    length = len(release)
    while length > 1 and release[length - 1] == 0:
        length -= 1
    return release[:length]


def _is_pre_release(parsed: dict[str, Any]) -> bool:
    return parsed["pre"] is not None or parsed["dev"] != math.inf


def _is_post_release_of(parsed: dict[str, Any], base: dict[str, Any]) -> bool:
    if parsed["post"] < 0 or base["post"] >= 0 or base["dev"] != math.inf:
        return False
    return _key({**parsed, "post": -1, "dev": math.inf}) == _key(base)


def _starts_with(version: str, series: dict[str, Any]) -> bool:
    have = _parse(version)
    length = len(series["release"])
    release = (have["release"] + [0] * length)[:length]
    return bool(have["epoch"] == series["epoch"] and release == series["release"])
