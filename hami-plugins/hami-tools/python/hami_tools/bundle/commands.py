"""The commands `hami verify` and `hami unpack`."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import hami
from hami import ConfigError
from hami.cli import json_of, printable

from hami_tools.bundle import opening, sealing
from hami_tools.bundle.boot import layout
from hami_tools.bundle.boot.layout import Bundle, BundleError, Member

SUMS = "SHA256SUMS"  # of the unpacked files, for sha256sum --check where Python is missing


def verify(arguments: argparse.Namespace) -> int:
    """Compare every member with its hash, the signature with a key, and the answers with those in the bundle."""
    bundle = opening.open_verified(arguments.bundle)
    key = sealing.signer(bundle, [sealing.public_key(arguments.key)] if arguments.key else [])
    count = int(bundle.facts.get("samples", 0))
    if not arguments.hashes and count:
        opening.verified.add(bundle.digest)
        with hami.pipe(arguments.bundle):
            pass
    size = sum(member.size for member in bundle.members.values())
    facts = {
        "file": arguments.bundle,
        "members": len(bundle.members),
        "bytes": size,
        "sha256": bundle.digest,
        "key": key or None,
        "samples": 0 if arguments.hashes else count,
    }
    if arguments.json:
        print(json_of(facts))
        return 0
    print(f"{printable(arguments.bundle)}: {len(bundle.members)} members, {size / 1e6:.1f} MB, as they were written")
    print(f"manifest {bundle.digest}")
    print(f"signed with the key {key}" if key else "not signed")
    print("answers not compared" if arguments.hashes else f"{count} answers as expected")
    return 0


def unpack(arguments: argparse.Namespace) -> int:
    """Write the members of a bundle into a new folder, decrypted if the environment has the key."""
    bundle = opening.open_verified(arguments.bundle)
    folder = Path(arguments.folder)
    if folder.exists():
        raise ConfigError(f'"{printable(folder)}" exists; give the name of a new folder')
    secret = b""
    if any(member.encrypted for member in bundle.members.values()):
        secret = sealing.secret(f"the bundle {printable(bundle.path)}", str(bundle.facts.get("key_id", "")))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise _cannot_unpack(folder, error) from error
    try:
        (work / layout.MANIFEST).write_bytes(bundle.manifest)
        sums = [f"{bundle.digest}  {layout.MANIFEST}\n"]
        for member in bundle.members.values():
            sums.append(f"{_unpacked(bundle, member, work, secret)}  {member.name}\n")
        with (work / SUMS).open("x", encoding="utf-8") as out:
            out.writelines(sums)
        work.chmod(0o700 if secret else 0o755)
        os.replace(work, folder)
    except BundleError as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        raise _cannot_unpack(folder, error) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    source = folder / bundle.facts.get("source", "")
    if arguments.json:
        print(json_of({"folder": str(folder), "members": len(bundle.members), "source": str(source)}))
    else:
        print(f"wrote {len(bundle.members)} files into {printable(folder)}; the pipeline is {printable(source)}")
    return 0


def _cannot_unpack(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f'cannot unpack into "{printable(folder)}": {error.strerror or error}')


def _unpacked(bundle: Bundle, member: Member, folder: Path, secret: bytes) -> str:
    """Write a member into a folder, decrypted, and return the hash of what was written."""
    path = folder / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    hashed = hashlib.sha256()
    with path.open("xb") as out:

        def write(part: bytes) -> None:
            hashed.update(part)
            out.write(part)

        if member.encrypted:
            sealing.decrypt(bundle, member, secret, write)
        else:
            for part in layout.verified_parts(bundle, member):
                write(part)
    return hashed.hexdigest()
