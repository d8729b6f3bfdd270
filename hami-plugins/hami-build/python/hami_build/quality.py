"""Reads quality.toml, a file in the package of a plugin: samples of requests, and exemptions with their reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hami_build.errors import Failure

NAME = "quality.toml"


@dataclass(frozen=True)
class Quality:
    """What the author of a plugin says about its backends."""

    samples: Mapping[str, Any] = field(default_factory=dict)  # a table with params and request, or "module:function"
    exempt: Mapping[str, str] = field(default_factory=dict)  # name of a check: the reason


def parse(text: str, place: str) -> Quality:
    """Return the contents of the file; raises Failure with its place if it is not valid."""
    try:
        import tomllib
    except ModuleNotFoundError:  # before Python 3.11
        import tomli as tomllib
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Failure(f"{place} is not valid TOML: {error}; correct it and build the wheel again") from error
    unknown = sorted(set(table) - {"samples", "exempt"})
    if unknown:
        raise Failure(f'{place} has "{unknown[0]}"; expected the tables samples and exempt')
    samples, exempt = table.get("samples", {}), table.get("exempt", {})
    for name, value in (("samples", samples), ("exempt", exempt)):
        if not isinstance(value, dict):
            raise Failure(f"{place}: {name} must be a table, got {value!r}; correct it and build the wheel again")
    for name, sample in samples.items():
        if isinstance(sample, dict) and set(sample) <= {"params", "request"}:
            if wrong := [key for key, value in sample.items() if not isinstance(value, dict)]:
                raise Failure(f"{place}: samples.{name}.{wrong[0]} must be a table, got {sample[wrong[0]]!r}")
            continue
        if not (isinstance(sample, str) and ":" in sample):
            raise Failure(f'{place}: samples.{name} must be a table with params and request, or "module:function"')
    for name, reason in exempt.items():
        if not (isinstance(reason, str) and reason.strip()):
            raise Failure(f'{place}: exempt."{name}" must be the reason, as text')
    return Quality(samples, exempt)
