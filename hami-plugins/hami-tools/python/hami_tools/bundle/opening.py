"""Opens a bundle as a source: verifies it, and gives its configuration, with models in a private folder."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from typing import Any

from hami import ConfigError, Pipe
from hami.cli import printable
from hami.packages import install_command, policy

from hami_tools.bundle import samples, sealing
from hami_tools.bundle.boot import folders, layout
from hami_tools.bundle.boot.layout import Bundle, BundleError
from hami_tools.packages import policy_rules
from hami_tools.packages.installers import installed_version

verified: set[str] = set()  # digests of bundles that the start of this process has verified; each counts once


def open_verified(path: str) -> Bundle:
    """Return a bundle whose members all have their hashes; raise ConfigError for any other file."""
    try:
        bundle = layout.open_bundle(path)
        _require_signature(bundle)
        if bundle.digest in verified:
            verified.discard(bundle.digest)
        else:
            layout.verify(bundle)
        return bundle
    except BundleError as error:
        raise ConfigError(str(error)) from error


def _require_signature(bundle: Bundle) -> None:
    """Raise ConfigError if the policy of the machine names keys, and none of them signed the bundle."""
    rules = policy_rules.read()
    if problem := rules.plugins.problem:
        raise ConfigError(f"no bundle is opened because of {problem}; {policy.ASK}")
    try:
        sealing.signer(bundle, rules.bundle_keys)
    except ConfigError as error:
        if rules.bundle_keys:
            raise ConfigError(f"{error}; {policy.PATH} requires this: {policy.ASK}") from None
        raise


def open_source(path: str) -> dict[str, Any]:
    """Return the configuration of a bundle, and the function that checks the answers of a pipe built from it."""
    bundle = open_verified(path)
    if "source" not in bundle.facts:
        raise ConfigError(f"{printable(path)} has no pipeline; make it again with hami bundle")
    folder = unpacked(bundle)
    _require_plugins(bundle)

    def accept(pipe: Pipe) -> None:
        samples.require_answers(pipe, path, folder, bundle.facts.get("tolerance"))

    return {"source": os.path.join(folder, bundle.facts["source"]), "accept": accept}


def unpacked(bundle: Bundle) -> str:
    """Return a folder with the configuration, models and samples. Links lead to decrypted files in memory."""
    try:
        if not any(each.encrypted for each in bundle.members.values()):
            return folders.files(bundle)
        folder = tempfile.mkdtemp(prefix="hami-bundle-")
        atexit.register(_remove, folder, os.getpid())
        _decrypt(bundle, folder)
        return folder
    except BundleError as error:
        raise ConfigError(str(error)) from error


def _remove(folder: str, process: int) -> None:
    """Remove a folder at the end of the process that made it. A forked one that ends leaves it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _decrypt(bundle: Bundle, folder: str) -> None:
    """Put each member into a file of memory: it has no name on a disk, and ends with this process."""
    key = sealing.secret(f"the bundle {printable(bundle.path)}", str(bundle.facts.get("key_id", "")))
    for number, member in enumerate(bundle.members.values()):
        if not folders.is_data(member.name):
            continue
        if not member.encrypted:
            folders.write_member(bundle, member, folder)
            continue
        try:
            handle = os.memfd_create(f"hami-bundle-{number}")  # a name of its own, by which `extends` tells files apart
        except OSError as error:
            raise ConfigError(
                f"{member.name} in {printable(bundle.path)} is decrypted into memory only, and this system refuses "
                f"that (memfd_create: {error.strerror}); allow it in the seccomp profile of the container"
            ) from error
        with open(handle, "wb", closefd=False) as out:
            sealing.decrypt(bundle, member, key, out.write)
        path = os.path.join(folder, member.name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(f"/proc/{os.getpid()}/fd/{handle}", path)


def _require_plugins(bundle: Bundle) -> None:
    """Raise ConfigError if a plugin is not installed. Nothing of the packages in the bundle runs here."""
    plugins = bundle.facts.get("plugins", {})
    if missing := [f"{name} {version}" for name, version in plugins.items() if not installed_version(name)]:
        names = [name for name in plugins if not installed_version(name)]
        raise ConfigError(
            f"{printable(bundle.path)} needs {', '.join(missing)}, which this environment does not have; the bundle "
            f"has its own packages: python {printable(bundle.path)} run …; or install it: {install_command(names[0])}"
        )
