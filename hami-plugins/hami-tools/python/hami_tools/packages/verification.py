"""Compares every file of hami-core and of the plugins with its recorded hash, and says who published the plugin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from hami import PluginError
from hami.cli import printable, visible
from hami.packages import normalised, read_file, reinstall

from hami_tools.packages import attestations, unlisted_files
from hami_tools.packages.attestations import Publisher, Unverified
from hami_tools.packages.installation import Copy, installed_copies


class Verified(NamedTuple):
    """The result for one installed distribution."""

    distribution: str
    version: str
    folder: str
    files: int  # that have a hash
    missing: list[str]
    changed: list[str]
    unlisted: list[str]  # files in its folders that no distribution lists, or that it lists without a hash
    installer: str
    source: str  # address of the wheel or folder, if it was not an index
    problem: str  # empty: every file is as installed, and no attestation is of another file
    publishers: list[Publisher]  # with a verified attestation of the file that it was installed from
    unattested: str  # why there are none


def verify() -> list[Verified]:
    """Return the result for every copy of hami-core and of each plugin."""
    return [_verified(copy) for _, copies in sorted(installed_copies().items()) for copy in copies]


def _verified(copy: Copy) -> Verified:
    info = Path(copy.metadata_folder)
    damaged = copy.changed + copy.changed_outside()
    missing = [name for name in damaged if not Path(copy.folder, name).exists()]
    changed = [name for name in damaged if name not in missing]
    more: list[str] = []
    if copy.files:
        changed += unlisted_files.changed_bytecode(copy)
        more = [*unlisted_files.without_hash(copy), *unlisted_files.unlisted(copy)]
    installer = _text(info / "INSTALLER").strip()
    source, editable = origin_of(_text(info / "direct_url.json"))
    publishers, unattested, wrong = _attested(copy, info)
    damage = _damage(copy, missing, changed, more, installer, editable=editable)
    if wrong:
        again = f"hami uninstall {copy.name} && hami install {copy.name}"
        damage = "; ".join(filter(None, [damage, f"{wrong}: {again}"]))
    return Verified(
        copy.name,
        copy.version,
        copy.folder,
        len(copy.files),
        missing,
        changed,
        more,
        installer,
        source,
        damage,
        publishers,
        unattested,
    )


def _attested(copy: Copy, info: Path) -> tuple[list[Publisher], str, str]:
    """Return who published a distribution, or why that is not known, or what is wrong with the attestation."""
    try:
        origin = attestations.read(info)
        if normalised(origin.file.partition("-")[0]) != copy.name:
            return [], "", f"{info / attestations.RECORD} is about another file, {printable(origin.file)}"
        return attestations.publishers(origin), "", ""
    except Unverified as reason:
        return [], str(reason), ""
    except PluginError as error:
        return [], "", str(error)


def _damage(
    copy: Copy, missing: list[str], changed: list[str], more: list[str], installer: str, *, editable: bool
) -> str:
    command = reinstall(copy.name, copy.folder)
    if editable:
        return "it is an editable installation, whose files may change: install it without --editable"
    if not copy.files:
        return f"its RECORD has no hashes, so nothing can be verified: {command}"
    if installer == "conda" and not missing and not more:  # it changes the binaries that it installs
        return ""
    named = {"missing": missing, "changed": changed, "not listed with a hash": more}
    parts = [
        f"{what} {visible(str(Path(copy.folder, names[0])))}{_more(names)}" for what, names in named.items() if names
    ]
    remedy = f"remove it, and {command}" if more else command
    return f"{', '.join(parts)}: {remedy}" if parts else ""


def _more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def origin_of(direct_url: str) -> tuple[str, bool]:
    """Return the address that a distribution was installed from, and whether it is editable, by its direct_url.json."""
    try:
        origin = json.loads(direct_url or "{}")
        return str(origin.get("url", "")), bool(origin.get("dir_info", {}).get("editable"))
    except (ValueError, AttributeError, RecursionError):
        return "", False


def is_of_file(direct_url: str) -> bool:
    """Return whether a direct_url.json says that the distribution was installed from a file."""
    try:
        return "archive_info" in json.loads(direct_url)
    except (ValueError, TypeError, RecursionError):
        return False


def _text(file: Path) -> str:
    try:
        return read_file(file).decode()
    except (OSError, ValueError):
        return ""
