"""The administrator's policy: which plugins may be used on this machine. Neither users nor variables override it."""

from __future__ import annotations

import stat
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
GRADES = ("bronze", "silver", "gold")  # of hami-build check, the lowest first

# An Ed25519 key as `openssl pkey -pubout` writes it: this prefix, then 32 bytes.
_KEY_PREFIX = bytes.fromhex("302a300506032b6570032100")
_KEY_LENGTH = 44


class Policy(NamedTuple):
    """Canonical names of distributions. Without `allow`, every plugin is allowed that is not in `block`."""

    allow: frozenset[str] | None = None
    block: frozenset[str] = frozenset()
    problem: str = ""  # why the file cannot be obeyed; then no plugin may be used
    catalog: str = ""  # the catalogue of this machine, instead of any that users name
    require_grade: str = ""  # the lowest grade in that catalogue with which a plugin may be installed
    catalog_key: str = ""  # the public key with which that catalogue must be signed
    # Repositories whose workflows may publish plugins. None: a plugin needs no attestation; empty: of any repository.
    require_attestation: frozenset[str] | None = None
    bundle_keys: tuple[str, ...] = ()  # one of these public keys must have signed a bundle; empty: none must
    check_files: bool = False  # whether the files of a plugin are compared with their hashes before it is imported

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
    catalog, grade = table.get("catalog", ""), table.get("require_grade", "")
    if not isinstance(catalog, str):
        raise ValueError('has no file or address in catalog: write catalog = "/etc/hami/catalog.json"')
    if grade not in ("", *GRADES):
        raise ValueError(f'has no grade in require_grade: write "{GRADES[0]}", "{GRADES[1]}" or "{GRADES[2]}"')
    if grade and not catalog:
        raise ValueError("has require_grade without catalog: name the catalogue that has the grades")
    if not isinstance(table.get("check_files", False), bool):
        raise ValueError("has neither true nor false in check_files: write check_files = true")
    return Policy(
        allow=lists.get("allow"),
        block=lists.get("block", frozenset()),
        catalog=catalog,
        require_grade=grade,
        catalog_key=_key(table.get("catalog_key", ""), catalog),
        require_attestation=_repositories(table.get("require_attestation", False)),
        bundle_keys=_keys(table.get("bundle_keys")),
        check_files=table.get("check_files", False),
    )


def _key(value: Any, catalog: str) -> str:

    try:
        if value != "":
            raw_key(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "has no public key in catalog_key: write the line between BEGIN and END that openssl pkey -pubout prints "
            "for an Ed25519 key"
        ) from error
    if value and not catalog:
        raise ValueError("has catalog_key without catalog: name the catalogue that is signed with the key")
    return str(value)


def _keys(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    try:
        if not isinstance(value, list) or not value:
            raise TypeError
        for text in value:
            raw_key(text)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "has no list of public keys in bundle_keys: write the lines between BEGIN and END that openssl pkey "
            "-pubout prints for Ed25519 keys"
        ) from error
    return tuple(value)


def _repositories(value: Any) -> frozenset[str] | None:
    if value is False:
        return None
    if value is True:
        return frozenset()
    if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
        raise ValueError(
            "has neither true nor a list of repositories in require_attestation: write require_attestation = "
            '["https://github.com/acme/words"]'
        )
    return frozenset(text.rstrip("/").lower() for text in value)


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
    lists = {"allow": found.allow, "block": found.block}
    texts = {key: ", ".join(sorted(names)) for key, names in lists.items() if names}
    texts |= {"catalog": found.catalog, "catalog_key": found.catalog_key, "require_grade": found.require_grade}
    if found.require_attestation is not None:
        texts["require_attestation"] = ", ".join(sorted(found.require_attestation)) or "true"
    if found.bundle_keys:
        texts["bundle_keys"] = ", ".join(found.bundle_keys)
    if found.check_files:
        texts["check_files"] = "true"
    return {"policy": "; ".join([str(PATH), *(f"{key} {text}" for key, text in texts.items() if text)])}


def raw_key(text: str) -> bytes:
    """Return the 32 bytes of a public key; raises ValueError for a text that is not one."""
    import base64

    decoded = base64.b64decode(text, validate=True)
    if len(decoded) != _KEY_LENGTH or not decoded.startswith(_KEY_PREFIX):
        raise ValueError("it is not an Ed25519 key")
    return decoded[len(_KEY_PREFIX) :]
