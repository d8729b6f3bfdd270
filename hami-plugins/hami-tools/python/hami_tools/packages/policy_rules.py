"""What the administrator's policy requires of installations and bundles."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

from hami.packages import policy

GRADES = ("bronze", "silver", "gold")  # of hami-build check, the lowest first

# An Ed25519 key as `openssl pkey -pubout` writes it: this prefix, then 32 bytes.
_KEY_PREFIX = bytes.fromhex("302a300506032b6570032100")
_KEY_LENGTH = 44


class Rules(NamedTuple):
    """The policy of the machine, with the keys that commands of hami-tools obey."""

    plugins: policy.Policy = policy.Policy()  # which plugins may be used; none if the file cannot be obeyed
    catalog: str = ""  # the catalogue of this machine, instead of any that users name
    require_grade: str = ""  # the lowest grade in that catalogue with which a plugin may be installed
    catalog_key: str = ""  # the public key with which that catalogue must be signed
    # Repositories whose workflows may publish plugins. None: a plugin needs no attestation; empty: of any repository.
    require_attestation: frozenset[str] | None = None
    bundle_keys: tuple[str, ...] = ()  # one of these public keys must have signed a bundle; empty: none must


def read() -> Rules:
    """Return the rules of this machine. If a key has a wrong value, no plugin may be installed."""
    plugins = policy.read()
    try:
        return _parse(plugins)
    except ValueError as error:
        return Rules(plugins._replace(problem=f"{policy.PATH}, which {error}"))


def problems() -> list[str]:
    """Return what `hami doctor` reports about the keys that the core does not read."""
    wrong = read().plugins.problem
    is_own = wrong != policy.read().problem
    return [f"nothing is installed, and no bundle is opened, because of {wrong}"] if is_own else []


def _parse(plugins: policy.Policy) -> Rules:
    table = plugins.others
    catalog, grade = table.get("catalog", ""), table.get("require_grade", "")
    if not isinstance(catalog, str):
        raise ValueError('has no file or address in catalog: write catalog = "/etc/hami/catalog.json"')
    if grade not in ("", *GRADES):
        raise ValueError(f'has no grade in require_grade: write "{GRADES[0]}", "{GRADES[1]}" or "{GRADES[2]}"')
    if grade and not catalog:
        raise ValueError("has require_grade without catalog: name the catalogue that has the grades")
    return Rules(
        plugins,
        catalog,
        grade,
        _key(table.get("catalog_key", ""), catalog),
        _repositories(table.get("require_attestation", False)),
        _keys(table.get("bundle_keys")),
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


def raw_key(text: str) -> bytes:
    """Return the 32 bytes of a public key; raises ValueError for a text that is not one."""
    decoded = base64.b64decode(text, validate=True)
    if len(decoded) != _KEY_LENGTH or not decoded.startswith(_KEY_PREFIX):
        raise ValueError("it is not an Ed25519 key")
    return decoded[len(_KEY_PREFIX) :]
