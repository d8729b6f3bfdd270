"""One installed plugin, packaged pipeline or native library, and the names that users give for them."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from hami import _core
from hami._errors import PluginError
from hami._plugins.messages import describe_exception
from hami._text import printable

CORE = "hami-core"  # the distribution of the core


def normalised(distribution: str) -> str:
    """Return the canonical spelling of a distribution's name: Hami_Image and hami.image are hami-image."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


class Incompatible(PluginError):
    """This hami-core does not serve the ABI version that a plugin needs; messages show the text after "…, which"."""


class Plugin:
    """One plugin: its metadata, its state and its backends.

    The state starts as "not loaded" or, by HAMI_PLUGINS or the policy, as "disabled". Loading changes "not loaded" to
    "ok", "failed" or "incompatible". A plugin that is "ok" is shown as "failed" while one of its classes cannot be
    imported.
    """

    def __init__(self, plugin: str, distribution: str, version: str, module: str) -> None:
        self.plugin = plugin
        self.distribution = distribution
        self.version = version
        self.module = module  # "package.module" or "package.module:object"
        self.declared: list[str] = []  # names of backends in the metadata
        self.devices: list[str] = []  # kinds of device, such as "cuda", for which it implements names
        self.models: list[str] = []  # extensions of model files that it opens, such as "onnx"
        self.library: str | None = None  # for a library in HAMI_PLUGIN_PATH, which has no module
        self.abi: str | None = None  # of a native plugin, once loaded
        self.since: str | None = None  # the first release of hami-core that a native plugin runs with, once loaded
        self.seconds: float | None = None  # that loading took
        self.object: Any = None  # the imported module or object
        self.classes: dict[str, _core.BackendClass | str] = {}  # the core's handle; until the first use "module:Class"
        self.for_devices: dict[tuple[str, str], _core.BackendClass | str] = {}  # the same by name and kind of device
        self.on_demand: set[str] = set()  # names of classes that are imported when they are first used
        self.failures: dict[str, BaseException] = {}  # of classes that cannot be imported; the others still work
        self.exception: BaseException | None = None  # why the plugin as a whole cannot be used
        self._state = "not loaded"
        self.disabled_by = ""  # "HAMI_PLUGINS=…", or the policy
        self.checks_files = False  # whether its files are compared with their hashes before it is imported
        self.identity = (distribution, version, plugin, module)

    @property
    def names(self) -> list[str]:
        """The names of all backends: those in the metadata, then those that are registered without being there."""
        return list(dict.fromkeys((*self.declared, *self.classes)))

    def disable(self, setting: str) -> None:
        """Exclude the plugin, by the policy or by a value of HAMI_PLUGINS."""
        self._state = "disabled"
        self.disabled_by = setting

    def succeed(self, loaded: Any) -> None:
        """Record that the plugin was loaded."""
        self._state = "ok"
        self.object = loaded

    def fail(self, error: BaseException) -> None:
        """Record why the plugin cannot be loaded."""
        self._state = "incompatible" if isinstance(error, Incompatible) else "failed"
        self.exception = error

    @property
    def state(self) -> str:
        """The state: ok, not loaded, disabled, failed or incompatible."""
        return "failed" if self.failures else self._state

    @property
    def error(self) -> str | None:
        """Why the plugin cannot be used, in one line; None if it can."""
        if self._state == "disabled":
            return f"disabled by {self.disabled_by}"
        if self.exception is not None:
            return describe_exception(self.exception)
        names_by_reason: dict[str, list[str]] = {}  # classes often fail for the same reason, such as a missing engine
        for name, error in self.failures.items():
            names_by_reason.setdefault(describe_exception(error), []).append(name)
        if len(names_by_reason) == 1 and self.on_demand <= self.failures.keys():
            return next(iter(names_by_reason))
        return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in names_by_reason.items()) or None


class Library(NamedTuple):
    """A loaded library: its own description, and the core's handles of its classes."""

    name: str
    version: str
    abi: str  # the ABI version that it was built with
    since: str  # the first release of hami-core that it runs with
    classes: list[_core.BackendClass]


def load_library(path: os.PathLike[str] | str, owner: str) -> Library:
    """Load a plugin's library, which stays loaded. Raises Incompatible or another PluginError."""
    try:
        name = os.fsencode(os.path.abspath(path))
    except UnicodeEncodeError as error:
        raise PluginError(
            f"the path of a library must be text that can name a file, got {os.fspath(path)!r}: {error.reason}"
        ) from None
    try:
        return Library(*_core.load_library(name, owner))
    except _core.AbiMismatch as error:
        raise Incompatible(str(error)) from None


class Pipeline(NamedTuple):
    """A packaged pipeline; `value` is "package:file.toml"."""

    name: str
    distribution: str
    version: str
    value: str


class PluginFilter:
    """The value of HAMI_PLUGINS: `a,b` enables only these plugins, `no:a,b` all others; empty: none, not set: all."""

    def __init__(self, setting: str | None) -> None:
        self.setting = printable(setting or "")
        enabled, exclusion, disabled = self.setting.partition("no:")
        self._disabled = _split(disabled)
        all_enabled = setting is None or (exclusion and not _split(enabled))
        self._enabled = None if all_enabled else _split(enabled)

    def disables(self, plugin: str) -> bool:
        """Return whether the setting excludes a plugin."""
        return plugin in self._disabled or (self._enabled is not None and plugin not in self._enabled)

    @property
    def names(self) -> set[str]:
        """Every plugin that the setting names."""
        return self._disabled | (self._enabled or set())


def _split(text: str) -> set[str]:
    return {name.strip().removeprefix("no:") for name in text.split(",") if name.strip()}
