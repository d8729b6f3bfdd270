"""Compares required packages with installed ones by PEP 440, as pip does: for the key `requires`, and `hami doctor`.

The package `packaging` is not a dependency of the core.
"""

from __future__ import annotations

import importlib.metadata as metadata
import math
import operator as operators
import re
from collections.abc import Callable
from typing import Any, NamedTuple

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
_FIRST = (0,)  # in place of a pre-release: before all of them
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
        if wildcard and (limit.is_pre_release or limit.post >= 0 or limit.local):
            raise ValueError(text)
        if (limit.local and not exact) or (operator == "~=" and len(_series(version)[1]) < 2):
            raise ValueError(text)
        bounds.append((operator, version))
    return name, bounds


def satisfies(version: str, bounds: Bounds) -> bool:
    """Return whether an installed version is within all bounds. Pre-releases are not excluded."""
    return all(_within(_parse(version), operator, bound) for operator, bound in bounds)


class _Version(NamedTuple):
    """A version in the order of PEP 440: 1.0.dev1 < 1.0a1 < 1.0rc1 < 1.0 < 1.0.post1; 1.0 and 1.0.0 are equal."""

    epoch: int
    release: tuple[int, ...]  # without zeros at its end
    pre: tuple[Any, ...]  # (1, letter, number) of a pre-release
    post: int
    dev: float
    local: str

    @property
    def is_pre_release(self) -> bool:
        return self.pre[0] == 1 or self.dev != math.inf

    def starts_with(self, epoch: int, release: list[int]) -> bool:
        """Return whether the release begins with some numbers; 1 is 1.0."""
        return self.epoch == epoch and [*self.release, *([0] * len(release))][: len(release)] == release


def _within(have: _Version, operator: str, bound: str) -> bool:
    if bound.endswith(".*"):
        return have.starts_with(*_series(bound[:-2])) == (operator == "==")
    limit = _parse(bound)
    if not limit.local:
        have = have._replace(local="")
    if operator == "~=":
        epoch, release = _series(bound)
        return have >= limit and have.starts_with(epoch, release[:-1])
    if operator == "<" and not limit.is_pre_release:
        limit = limit._replace(pre=limit.pre if limit.post >= 0 else _FIRST, dev=0)  # <2.0 does not accept 2.0rc1
    is_post_release = have.post >= 0 > limit.post and limit.dev == math.inf
    if operator == ">" and is_post_release and have._replace(post=-1, dev=math.inf) == limit:
        return False  # >2.0 does not accept 2.0.post1
    return _COMPARE[operator](have, limit)


def _parts(text: str) -> dict[str, str | None]:
    found = _VERSION.fullmatch(text.strip())
    if not found:
        raise ValueError(text)
    return found.groupdict()


def _series(text: str) -> tuple[int, list[int]]:
    """Return the epoch and every number of the release."""
    part = _parts(text)
    return int(part["epoch"] or 0), [int(number) for number in (part["release"] or "").split(".")]


def _parse(text: str) -> _Version:
    part = _parts(text)
    epoch, release = _series(text)
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    post = part["post_only"] or (part["post"] and (part["post_n"] or "0"))
    dev = int(part["dev_n"] or 0) if part["dev"] else math.inf
    pre: tuple[Any, ...] = _FIRST if dev != math.inf and not post else (2,)
    if part["pre"]:
        letter = part["pre"].lower()
        pre = (1, _PRE.get(letter, letter), int(part["pre_n"] or 0))
    local = [str(int(each)) if each.isdigit() else each for each in re.split("[-_.]", (part["local"] or "").lower())]
    return _Version(epoch, tuple(release), pre, int(post) if post else -1, dev, ".".join(local))
