"""Platform: the devices that this process can use, by name, from the entry points `hami_accel.devices`."""

from __future__ import annotations

import os
import threading
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import hami

from hami_accel.device import Device

GROUP = "hami_accel.devices"

_lock = threading.Lock()
_devices: dict[str, Device] = {}  # one of each name in a process, so that all models of a device share its engine


def _reset_after_fork() -> None:
    """Forget the devices of the parent process, whose threads do not exist in the child."""
    global _lock, _devices
    _lock, _devices = threading.Lock(), {}


os.register_at_fork(after_in_child=_reset_after_fork)


class Platform:
    """The accelerators of this machine.

    >>> "sim" in Platform().names()
    True
    """

    def names(self) -> list[str]:
        """Return the names of all devices, also of those whose module is missing."""
        return sorted(_entries())

    def device(self, name: str) -> Device:
        """Return a device. Equal names give the same object.

        Raises:
            hami.ConfigError: no plugin has the device, or a module that it needs is missing.
        """
        with _lock:
            if name not in _devices:
                _devices[name] = _create(name)
            return _devices[name]

    def summary(self) -> dict[str, dict[str, Any]]:
        """Return what each device can do, or why it cannot be used."""
        found: dict[str, dict[str, Any]] = {}
        for name in self.names():
            try:
                device = self.device(name)
                found[name] = {**device.capabilities._asdict(), **device.describe()}
            except hami.Error as error:
                found[name] = {"error": str(error)}
        return found

    def s(self) -> None:
        """Print the summary as a table."""
        from hami_accel.report import table

        rows = [
            [name, key, value] for name, facts in self.summary().items() for key, value in facts.items()
        ]  # one fact per line
        print("\n".join(table(rows, ["device", "property", "value"])))


def _entries() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _create(name: str) -> Device:
    entries = _entries()
    if name not in entries:
        raise hami.ConfigError(
            f"no device {name!r}; installed devices are {', '.join(sorted(entries)) or 'none'}. Devices come from "
            f'packages with an entry point in the group "{GROUP}"'
        )
    try:
        created = entries[name].load()()
    except ImportError as error:
        raise hami.ConfigError(
            f"the device {name!r} needs the module {error.name or error}, which cannot be imported: "
            f"{error}{_hint(entries[name])}"
        ) from error
    assert isinstance(created, Device), f"the entry point {entries[name].value} is not a hami_accel.Device"
    return created


def _hint(entry: EntryPoint) -> str:
    """Return how to install what a device needs, if its package has an extra of that name."""
    if entry.dist is None or entry.name not in (entry.dist.metadata.get_all("Provides-Extra") or ()):
        return ""
    return f': pip install "{entry.dist.name}[{entry.name}]"'
