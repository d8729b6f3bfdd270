"""The administrator's policy: which plugins may be used on this machine. Neither users nor variables override it."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hami._errors import PluginError
from hami._plugins.plugin import CORE, normalised

PATH = Path("/etc/hami/policy.toml")
KEYS = (
    "allow",
    "block",
    "bundle_keys",
    "catalog",
    "catalog_key",
    "check_files",
    "require_attestation",
    "require_grade",
)
ASK = "ask the administrator of this machine"


class Policy(NamedTuple):
    """Canonical names of distributions. Without `allow`, every plugin is allowed that is not in `block`."""

    allow: frozenset[str] | None = None
    block: frozenset[str] = frozenset()
    problem: str = ""  # why the file cannot be obeyed; then no plugin may be used
    check_files: bool = False  # whether the files of a plugin are compared with their hashes before it is imported
    others: Mapping[str, Any] = {}  # the keys about installations and bundles, which hami-tools checks and obeys

    def reason_against(self, distribution: str) -> str:
        """Return why a distribution may not be used; empty if it may."""
        name = normalised(distribution)
        if self.problem:
            return self.problem
        if name in self.block:
            return f"{PATH}, which blocks {name}"
        if self.allow is not None and name not in self.allow and name != CORE:
            return f"{PATH}, which does not allow {name}"
        return ""

    def require(self, distributions: list[str]) -> None:
        """Raise PluginError for the first distribution that may not be used."""
        for name in distributions:
            if reason := self.reason_against(name):
                raise PluginError(f"{name} is disabled by {reason}; {ASK}")


def read() -> Policy:
    """Return the policy of this machine. A file that cannot be obeyed disables every plugin."""
    try:
        if not PATH.exists():
            return Policy()
        _require_protected(PATH)
        return _parse(PATH.read_bytes())
    except OSError as error:
        return Policy(problem=f"{PATH}, which cannot be read ({error.strerror}): make it readable for every user")
    except ValueError as error:
        return Policy(problem=f"{PATH}, which {error}")


def _require_protected(path: Path) -> None:
    """Raise ValueError if users may change the file or replace it."""
    for checked in (path, path.parent):
        status = checked.stat()
        if status.st_uid != 0 or stat.S_IMODE(status.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
            raise ValueError(f"users may change: chown root {checked} && chmod go-w {checked}")


def _parse(text: bytes) -> Policy:
    try:
        import tomllib
    except ModuleNotFoundError:  # before Python 3.11
        import tomli as tomllib
    try:
        table: dict[str, Any] = tomllib.loads(text.decode("utf-8"))
    except ValueError as error:  # also of the decoder
        raise ValueError(f"is not TOML ({error}): correct it") from error
    if unknown := sorted(table.keys() - set(KEYS)):
        raise ValueError(f"has the unknown key {unknown[0]}: the keys are {', '.join(KEYS)}")
    lists = {key: _names(key, table[key]) for key in ("allow", "block") if key in table}
    if not isinstance(table.get("check_files", False), bool):
        raise ValueError("has neither true nor false in check_files: write check_files = true")
    return Policy(
        allow=lists.get("allow"),
        block=lists.get("block", frozenset()),
        check_files=table.get("check_files", False),
        others={key: value for key, value in table.items() if key not in Policy._fields},
    )


def _names(key: str, value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError(f'has no list of names in {key}: write {key} = ["hami-onnx"]')
    return frozenset(map(normalised, value))


def fact() -> dict[str, str]:
    """Return the line of `hami doctor` about the policy; empty if there is none."""
    found = read()
    if found == Policy():
        return {}
    if found.problem:
        return {"policy": f"every plugin is disabled by {found.problem}"}
    texts: dict[str, Any] = {"allow": sorted(found.allow or ()), "block": sorted(found.block), **found.others}
    texts["check_files"] = found.check_files
    shown = (f"{key} {_text_of(value)}" for key, value in texts.items() if value)
    return {"policy": "; ".join([str(PATH), *shown])}


def _text_of(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
