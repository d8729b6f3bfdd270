"""Attestations (PEP 740): the publishers of the file that a plugin was installed from.

`hami install` records the file and what the index or the catalogue says about its origin in the metadata of the plugin.
pypi-attestations verifies it, offline, and is imported only then.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from hami import PluginError
from hami.cli import printable
from hami.packages import read_file

from hami_tools.packages.signatures import EXTRA

RECORD = "hami-provenance.json"  # in .dist-info
FORMAT = 1
_HOSTS = {"GitHub": "https://github.com", "GitLab": "https://gitlab.com"}


class Unverified(Exception):
    """The publisher of a file is not known; the text says why."""


class Publisher(NamedTuple):
    """The publisher of a file, by the certificate of the attestation."""

    kind: str  # "GitHub", "GitLab" or "Google"
    source: str  # address of the repository, or the account
    workflow: str  # file of the workflow in that repository

    def __str__(self) -> str:
        return f"{self.source}, {self.workflow}" if self.workflow else self.source


class Origin(NamedTuple):
    """The file that a distribution was installed from."""

    file: str
    sha256: str
    provenance: str = ""  # the provenance object of PEP 740, as JSON
    missing: str = ""  # why there is none


def publishers(origin: Origin) -> list[Publisher]:
    """Return the publishers whose attestations of a file are valid.

    Raises:
        Unverified: There is no attestation, or it cannot be verified here.
        PluginError: An attestation is invalid, or belongs to another file.
    """
    if not origin.provenance:
        raise Unverified(origin.missing or f"there is no attestation of {origin.file}")
    try:
        from pypi_attestations import AttestationError, Distribution, Provenance
        from sigstore.errors import Error as SigstoreError
    except ImportError:
        raise Unverified(f"{origin.file} has an attestation; to verify it: {EXTRA}") from None
    try:
        found = Provenance.model_validate_json(origin.provenance)
        file = Distribution(name=origin.file, digest=origin.sha256)
        for bundle in found.attestation_bundles:
            for attestation in bundle.attestations:
                attestation.verify(bundle.publisher, file, offline=True)
    except SigstoreError as error:  # the keys of the transparency log cannot be read
        raise Unverified(f"the attestation of {origin.file} cannot be verified here: {error}") from error
    except (AttestationError, ValueError) as error:
        reason = " ".join(str(error).removeprefix("Verification failed: ").split())
        name = printable(origin.file)
        raise PluginError(f"the attestation of {name} is not valid for this file: {reason}") from error
    signed = [_publisher(bundle.publisher.model_dump()) for bundle in found.attestation_bundles if bundle.attestations]
    if not signed:
        raise Unverified(f"the provenance of {origin.file} contains no attestation")
    return list(dict.fromkeys(signed))


def _publisher(fields: dict[str, Any]) -> Publisher:
    kind = fields["kind"]
    workflow = fields.get("workflow") or fields.get("workflow_filepath") or ""
    source = f"{_HOSTS[kind]}/{fields['repository']}" if kind in _HOSTS else fields["email"]
    return Publisher(kind, source.lower(), workflow)


def read(info: Path) -> Origin:
    """Return what the metadata in a .dist-info say about the file; raises Unverified if they do not name it."""
    try:
        with contextlib.suppress(FileNotFoundError):
            fields = json.loads(read_file(info / RECORD))
            if fields["format"] != FORMAT:
                raise Unverified(f"{info / RECORD} has the format {fields['format']}, expected {FORMAT}")
            return Origin(*(str(fields[name]) for name in Origin._fields))
        fields = json.loads(read_file(info / "direct_url.json"))
        name = unquote(os.path.basename(urlsplit(fields["url"]).path))
        return Origin(name, fields["archive_info"]["hashes"]["sha256"], missing="it was installed from an address")
    except (OSError, LookupError, TypeError, ValueError, RecursionError):
        raise Unverified("its installer did not record the file; hami install does") from None


def write(info: Path, origin: Origin) -> None:
    """Record the file in a .dist-info, as a file that the installer removes with the others.

    A folder that cannot be written stays as it is: the plugin works without.
    """
    text = json.dumps({"format": FORMAT, **origin._asdict()}).encode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).decode().rstrip("=")
    with contextlib.suppress(OSError):
        (info / RECORD).write_bytes(text)
        with (info / "RECORD").open("a", encoding="utf-8", newline="") as listed:
            listed.write(f"{info.name}/{RECORD},sha256={digest},{len(text)}\n")
