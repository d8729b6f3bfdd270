"""The index of installed plugins, backends and pipelines, built from metadata alone: nothing is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from hami._plugins import policy
from hami._plugins.distributions import Distribution, installed_distributions, target_of
from hami._plugins.plugin import Pipeline, Plugin, PluginFilter, normalised
from hami._text import printable

CHECK_FILES = "HAMI_CHECK_FILES"  # "1" asks for what the key check_files of the policy requires


class Index:
    """The plugins of the environment at the time when the index was built."""

    def __init__(self, setting: str | None, folders: str = "") -> None:
        """`setting` is the value of HAMI_PLUGINS, `folders` that of HAMI_PLUGIN_PATH."""
        self.filter = PluginFilter(setting)
        self._policy = policy.read()
        self.plugins: list[Plugin] = []
        self.pipelines: dict[str, list[Pipeline]] = {}
        self.path_state = path_state(folders)
        distributions, damaged = installed_distributions()
        for distribution in distributions:
            self._add(distribution)
        for plugin in (*damaged, *_bare_libraries(folders)):
            self._add_plugin(plugin)

    def _add(self, distribution: Distribution) -> None:
        name, version, entry_points = distribution
        by_module: dict[str, Plugin] = {}
        for entry in entry_points:
            if entry.group == "hami":
                by_module[target_of(entry)] = Plugin(entry.name, name, version, target_of(entry))
        for entry in entry_points:
            target = target_of(entry)
            if entry.group == "hami.backends":
                # Without an entry in the group `hami`, the plugin has the name of the distribution.
                owner = by_module.setdefault(target, Plugin(name, name, version, target))
                if entry.name not in owner.declared:
                    owner.declared.append(entry.name)
            elif entry.group == "hami.devices":
                by_module.setdefault(target, Plugin(name, name, version, target)).devices.append(entry.name)
            elif entry.group == "hami.models":
                by_module.setdefault(target, Plugin(name, name, version, target)).models.append(entry.name.lower())
            elif entry.group == "hami.pipelines" and not self._policy.reason_against(name):
                self.pipelines.setdefault(entry.name, []).append(Pipeline(entry.name, name, version, target))
        for plugin in by_module.values():
            self._add_plugin(plugin)

    def _add_plugin(self, plugin: Plugin) -> None:
        if reason := self._policy.reason_against(plugin.distribution):
            plugin.disable(reason)
        elif self.filter.disables(plugin.plugin):
            plugin.disable(f"HAMI_PLUGINS={self.filter.setting}")
        plugin.checks_files = self._policy.check_files or os.environ.get(CHECK_FILES) == "1"
        self.plugins.append(plugin)

    def owners(self, name: str) -> list[Plugin]:
        """Return the enabled plugins that declare `name`; if there are none, the plugins that have registered it."""
        declaring = [plugin for plugin in self.plugins if name in plugin.declared and plugin.state != "disabled"]
        return declaring or [plugin for plugin in self.plugins if name in plugin.classes]

    def of(self, distribution: str) -> list[Plugin]:
        """Return the plugins of a distribution."""
        wanted = normalised(distribution)
        return [plugin for plugin in self.plugins if normalised(plugin.distribution) == wanted]

    def keep_loaded(self, previous: Index) -> None:
        """Take over the plugins that the previous index has loaded; failed plugins are loaded again."""
        loaded = {plugin.identity: plugin for plugin in previous.plugins if plugin.state == "ok"}
        self.plugins = [loaded.get(plugin.identity, plugin) for plugin in self.plugins]


def _bare_libraries(folders: str) -> Iterator[Plugin]:
    """Yield a plugin for each library in the folders of HAMI_PLUGIN_PATH: libacme.so is the plugin acme."""
    for folder in filter(None, folders.split(os.pathsep)):
        for path in sorted(Path(folder).absolute().glob("*.so")):
            plugin = Plugin(printable(path.stem.removeprefix("lib")), printable(path), "", printable(path))
            plugin.library = str(path)
            yield plugin


def path_state(folders: str = "") -> list[tuple[str, int]]:
    """Return the folders of sys.path and HAMI_PLUGIN_PATH with their modification times.

    The result changes when a package is installed or removed.
    """
    state = []
    for folder in [*sys.path, *filter(None, folders.split(os.pathsep))]:
        try:
            state.append((folder, os.stat(folder or ".").st_mtime_ns))
        except OSError:
            state.append((folder, 0))
    return state
