"""Which installed distributions have plugins, backends and pipelines: from metadata alone, nothing is imported."""

from __future__ import annotations

import importlib
import importlib.metadata as metadata
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hami._errors import PluginError
from hami._plugins.messages import describe_exception
from hami._plugins.native_loading import Refused, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hami._core import BackendClass

GROUPS = {"hami", "hami.backends", "hami.pipelines"}
_OURS = re.compile(r"^\[hami[.\]]", re.M)  # in an entry_points.txt


def normalised(distribution: str) -> str:
    """Return the one spelling of a distribution's name: Hami_Image and hami.image are hami-image."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


class Filter:
    """What HAMI_PLUGINS lets through: `a,b` only these, `no:a,b` all but these, empty none, unset all."""

    def __init__(self, setting: str | None) -> None:
        self.setting = shown(setting or "")
        allowed, block_list, blocked = self.setting.partition("no:")
        self._blocked = _names(blocked)
        everything = setting is None or (block_list and not _names(allowed))
        self._allowed = None if everything else _names(allowed)

    def blocks(self, plugin: str) -> bool:
        return plugin in self._blocked or (self._allowed is not None and plugin not in self._allowed)

    @property
    def names(self) -> set[str]:
        """Every name that the setting mentions."""
        return self._blocked | (self._allowed or set())


def _names(text: str) -> set[str]:
    return {name.strip().removeprefix("no:") for name in text.split(",") if name.strip()}


class Plugin:
    """One plugin: what its metadata says, and what became of it."""

    def __init__(self, plugin: str, distribution: str, version: str, module: str) -> None:
        self.plugin = plugin
        self.distribution = distribution
        self.version = version
        self.module = module  # "package.module" or "package.module:object"
        self.promised: list[str] = []
        self.library: str | None = None  # of HAMI_PLUGIN_PATH, which is the whole plugin
        self.abi: str | None = None  # of native plugins, once loaded
        self.seconds: float | None = None
        self.object: Any = None  # the imported object
        self.classes: dict[str, BackendClass | str] = {}  # name -> "module:Class" until used, then the core's handle
        self.failures: dict[str, BaseException] = {}  # classes whose import failed; the others still work
        self.exception: BaseException | None = None  # why the plugin as a whole cannot be used
        self._state = "not loaded"
        self._blocked_by = ""
        self.identity = (distribution, version, plugin, module)

    def block(self, setting: str) -> None:
        self._state = "disabled"
        self._blocked_by = setting

    def succeed(self, loaded: Any) -> None:
        self._state = "ok"
        self.object = loaded

    def fail(self, error: BaseException) -> None:
        self._state = "incompatible" if isinstance(error, Refused) else "failed"
        self.exception = error

    @property
    def state(self) -> str:
        """Return ok, unused, blocked, broken or refused."""
        return "failed" if self.failures else self._state

    @property
    def error(self) -> str | None:
        if self._state == "disabled":
            return f"blocked by HAMI_PLUGINS={self._blocked_by}"
        if self.exception:
            return describe_exception(self.exception)
        names: dict[
            str, list[str]
        ] = {}  # of classes that failed for the same reason, an engine that is missing as a rule
        for name, error in self.failures.items():
            names.setdefault(describe_exception(error), []).append(name)
        return "; ".join(f"{', '.join(failed)}: {reason}" for reason, failed in names.items()) or None


class Pipeline(NamedTuple):
    """A packaged pipeline: `value` is "package:file.toml"."""

    name: str
    distribution: str
    version: str
    value: str


class Index:
    """The plugins of the environment as it was when this was built."""

    def __init__(self, setting: str | None, folders: str = "") -> None:
        """`setting` is HAMI_PLUGINS, `folders` is HAMI_PLUGIN_PATH."""
        self.filter = Filter(setting)
        self.plugins: list[Plugin] = []
        self.pipelines: dict[str, list[Pipeline]] = {}
        self.path_state = path_state(folders)
        damaged: list[Plugin] = []
        for distribution, version, entry_points in _distributions(damaged):
            self._add(distribution, version, entry_points)
        for plugin in damaged:
            self._keep(plugin)
        for plugin in _bare_libraries(folders):
            self._keep(plugin)

    def _add(self, distribution: str, version: str, entry_points: list[metadata.EntryPoint]) -> None:
        by_module: dict[str, Plugin] = {}
        for entry in entry_points:
            if entry.group == "hami":
                by_module[_place(entry)] = Plugin(entry.name, distribution, version, _place(entry))
        for entry in entry_points:
            if entry.group == "hami.backends":
                # Without an entry in the group `hami` the distribution's name serves as the plugin's.
                place = _place(entry)
                owner = by_module.setdefault(place, Plugin(distribution, distribution, version, place))
                if entry.name not in owner.promised:
                    owner.promised.append(entry.name)
            elif entry.group == "hami.pipelines":
                pipeline = Pipeline(entry.name, distribution, version, _place(entry))
                self.pipelines.setdefault(entry.name, []).append(pipeline)
        for plugin in by_module.values():
            self._keep(plugin)

    def _keep(self, plugin: Plugin) -> None:
        if self.filter.blocks(plugin.plugin):
            plugin.block(self.filter.setting)
        self.plugins.append(plugin)

    def owners(self, name: str) -> list[Plugin]:
        """Return the plugins that promise `name` and are not blocked; where none is, those that have registered it."""
        promise = [plugin for plugin in self.plugins if name in plugin.promised and plugin.state != "disabled"]
        return promise or [plugin for plugin in self.plugins if name in plugin.classes]

    def of(self, distribution: str) -> list[Plugin]:
        wanted = normalised(distribution)
        return [plugin for plugin in self.plugins if normalised(plugin.distribution) == wanted]

    def keep_loaded(self, earlier: Index) -> None:
        """Take over what an earlier index has loaded; failed plugins are tried again."""
        loaded = {plugin.identity: plugin for plugin in earlier.plugins if plugin.state == "ok"}
        self.plugins = [loaded.get(plugin.identity, plugin) for plugin in self.plugins]


def _place(entry: metadata.EntryPoint) -> str:
    """Return the target of an entry point, without extras that may follow it: "package.module [gpu]"."""
    return entry.value.partition("[")[0].strip()


def _bare_libraries(folders: str) -> Iterator[Plugin]:
    """Yield a plugin for each library in the folders of HAMI_PLUGIN_PATH: libacme.so is the plugin acme."""
    for folder in filter(None, folders.split(os.pathsep)):
        for path in sorted(Path(folder).absolute().glob("*.so")):
            plugin = Plugin(shown(path.stem.removeprefix("lib")), shown(path), "", shown(path))
            plugin.library = str(path)
            yield plugin


def path_state(folders: str = "") -> list[tuple[str, int]]:
    """Return what changes when a package is installed or removed: the folders of sys.path and ours, and their times."""
    state = []
    for folder in [*sys.path, *filter(None, folders.split(os.pathsep))]:
        try:
            state.append((folder, os.stat(folder or ".").st_mtime_ns))
        except OSError:
            state.append((folder, 0))
    return state


def _distributions(damaged: list[Plugin]) -> Iterator[tuple[str, str, list[metadata.EntryPoint]]]:
    """Yield name, version and entry points of every distribution with any in our groups, sorted by name.

    Distributions whose metadata cannot be read are added to `damaged`.
    """
    importlib.invalidate_caches()
    names: dict[str, str] = {}
    for found in metadata.distributions():
        # Most distributions have nothing for us, a leftover folder may lack any file: neither may cost or break much.
        try:
            text = found.read_text("entry_points.txt") or ""
        except UnicodeDecodeError as error:
            if _OURS.search(error.object.decode(errors="replace")):
                damaged.append(_damaged(found, "its entry_points.txt is not UTF-8 text"))
            continue
        except Exception:
            continue
        if "hami" not in text:
            continue
        if name := _name_of(found):
            names.setdefault(normalised(name), name)
        elif _OURS.search(text):
            damaged.append(_damaged(found, "it has no METADATA with a name"))
    for _, name in sorted(names.items()):
        try:
            used = _in_use(list(metadata.distributions(name=name)))
        except Exception:
            continue
        try:
            entry_points = [entry for entry in used.entry_points if entry.group in GROUPS]
        except Exception:
            if _OURS.search(used.read_text("entry_points.txt") or ""):
                damaged.append(_damaged(used, "its entry_points.txt is not a list of entry points"))
            continue
        if entry_points:
            yield name, _version_of(used), entry_points


def _damaged(found: metadata.Distribution, reason: str) -> Plugin:
    """Return a plugin that stands for a distribution of which no more is known than that it is one."""
    folder = str(getattr(found, "_path", ""))
    name = _name_of(found) or os.path.basename(folder).partition("-")[0] or "(no name)"
    plugin = Plugin(name, name, _version_of(found), "")
    where = f" in {folder}" if folder else ""
    plugin.fail(PluginError(f"its metadata{where} is damaged: {reason}; remove it, or install {name} again"))
    return plugin


def _in_use(copies: list[metadata.Distribution]) -> metadata.Distribution:
    """Return which metadata of one name counts: the first on sys.path, as for an import.

    `pip install --target --upgrade` leaves the metadata of the version before: in one folder those with plugins count.
    """
    if len(copies) == 1:
        return copies[0]
    first = next((copy for copy in copies if not _without_files(copy)), copies[0])
    beside = (copy for copy in copies if copy.locate_file("") == first.locate_file(""))
    return next((copy for copy in beside if any(entry.group in GROUPS for entry in copy.entry_points)), first)


def _without_files(copy: metadata.Distribution) -> bool:
    """Say whether metadata were left behind where the package itself is gone."""
    files = (line.partition(",")[0] for line in (copy.read_text("RECORD") or "").splitlines())
    own = [file for file in files if ".dist-info/" not in file]
    return bool(own) and not any(os.path.exists(str(copy.locate_file(file))) for file in own)


def _name_of(found: metadata.Distribution) -> str:
    try:
        return found.metadata["Name"] or ""
    except Exception:  # newer Pythons raise, older ones return None, where the METADATA file is gone
        return ""


def _version_of(found: metadata.Distribution) -> str:
    try:
        return found.version or "(unknown version)"
    except Exception:
        return "(unknown version)"
