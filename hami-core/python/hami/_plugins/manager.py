"""Finds the plugin that owns a backend's name, loads that one, and says what is wrong where it cannot."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hami import _core
from hami._errors import BackendNotFound
from hami._plugins import first_party as _first_party
from hami._plugins import messages
from hami._plugins.index import Index, Pipeline, Plugin, normalised, path_state
from hami._plugins.loading import Loader

CORE = "hami-core"
SLOW = 1.0  # seconds that loading a plugin may take before it is remarked upon


class PluginRecord(NamedTuple):
    """The record of one plugin; `state` is ok, not loaded, disabled, failed or incompatible."""

    plugin: str
    distribution: str
    version: str
    abi: str | None  # of native plugins
    state: str
    error: str | None
    seconds: float | None  # what loading took
    backends: tuple[str, ...]
    pipelines: tuple[str, ...]  # those that its distribution packages
    remarks: tuple[str, ...]  # what is worth knowing although it works


class BackendInfo(NamedTuple):
    """One name that an expression can use. What its class says is None as long as its plugin is not loaded."""

    name: str
    owner: str  # the distribution; "" if this process registered it
    doc: str | None = None
    params: list[dict[str, Any]] | None = None
    brackets: str | None = None
    thread: str | None = None
    non_blocking: bool | None = None
    range: str | None = None  # how many items a forward takes; "" if any number
    aliases: list[str] | None = None


class PluginManager:
    """The plugins of one environment: an index from metadata, built on first need, and what was loaded since."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._lock = threading.Lock()  # guards _index
        self._index: Index | None = None
        self._loader = Loader()

    def begin_in_a_fork(self) -> None:
        """Release locks whose holders do not exist in this process."""
        self._lock = threading.Lock()
        self._loader.begin_in_a_fork()

    def index(self) -> Index:
        with self._lock:
            if self._index is None:
                self._index = self._fresh_index()
            return self._index

    def _fresh_index(self) -> Index:
        return Index(self._environment.get("HAMI_PLUGINS"), self._environment.get("HAMI_PLUGIN_PATH", ""))

    def find(self, name: str, distribution: str = "", providers: Mapping[str, str] | None = None) -> _core.BackendClass:
        """Return the core's handle of the backend `name`, of `distribution` if given; load its plugin, and no other.

        Raises BackendNotFound or PluginError, each with `headline` and `hint`.
        """
        wanted = distribution or (providers or {}).get(name, "")
        try:
            return self._find_in(name, wanted) if wanted else self._find(name)
        except BackendNotFound:
            if not self._refresh():
                raise
            return self._find_in(name, wanted) if wanted else self._find(name)

    def _find(self, name: str) -> _core.BackendClass:
        index = self.index()
        found = self._of_owners(name, index.owners(name))
        if found is None:
            for plugin in index.plugins:
                self._loader.load(plugin)
            found = self._of_owners(name, index.owners(name))
        if found is None:  # its provider is disabled, and there is no other
            found = self._of_owners(name, [plugin for plugin in index.plugins if name in plugin.promised])
        if found is None:
            raise self._not_found(name, index)
        return found

    def _of_owners(self, name: str, owners: list[Plugin]) -> _core.BackendClass | None:
        """Return the class if one plugin owns it, None if none does."""
        distributions = self._distributions(owners)
        if len(distributions) > 1:
            raise messages.conflict(name, distributions)
        for plugin in owners:
            if plugin.state != "disabled":
                return self._class_of(plugin, name)
        if owners:
            raise messages.blocked(name, owners[0].distribution, self.index().filter.setting)
        return None

    @staticmethod
    def _distributions(owners: list[Plugin]) -> list[str]:
        """Return whom a name belongs to as far as they are not blocked; more than one is a conflict."""
        return sorted({plugin.distribution for plugin in owners if plugin.state != "disabled"}, key=_first_party_first)

    def _find_in(self, name: str, distribution: str) -> _core.BackendClass:
        if normalised(distribution) == CORE:
            own = {known: handle for known, handle in _defined().items() if handle.owner == CORE}
            if name in own:
                return own[name]
            raise messages.unknown_in(name, CORE, [known for known, handle in own.items() if known == handle.name])
        index = self.index()
        plugins = index.of(distribution)
        if not plugins:
            raise messages.no_such_distribution(
                name,
                distribution,
                sorted({plugin.distribution for plugin in index.plugins}),
                first_party=normalised(distribution) in _first_party.DISTRIBUTIONS,
            )
        if not any(name in plugin.promised for plugin in plugins):
            for plugin in plugins:
                self._loader.load(plugin)
        owners = [plugin for plugin in plugins if name in plugin.promised or name in plugin.classes]
        found = self._of_owners(name, owners)
        if found is None:
            names = sorted({known for plugin in plugins for known in (*plugin.promised, *plugin.classes)})
            raise messages.unknown_in(name, plugins[0].distribution, names)
        return found

    def _class_of(self, plugin: Plugin, name: str) -> _core.BackendClass:
        self._loader.load(plugin)
        if name not in plugin.classes:
            report = messages.refused if plugin.state == "incompatible" else messages.failed
            raise report(name, plugin.distribution, plugin.version, plugin.error or "") from plugin.exception
        try:
            return self._loader.class_of(plugin, name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            text = messages.describe_exception(error)
            raise messages.failed(name, plugin.distribution, plugin.version, text) from error

    def _not_found(self, name: str, index: Index) -> BackendNotFound:
        if name in _first_party.BACKENDS:
            return messages.not_installed(name, _first_party.BACKENDS[name])
        for plugin in index.plugins:
            if plugin.object is None:
                continue
            try:
                answer = self._loader.ask("hami_missing_backend", plugin, name=name)
            except KeyboardInterrupt:
                raise
            except BaseException:  # a hook that fails must not hide which name is wrong
                continue
            if answer:
                return messages.missing_hook_answer(name, str(answer))
        return messages.unknown(name, self.names())

    def _refresh(self) -> bool:
        """Rebuild the index if packages were installed or removed; return whether it was."""
        with self._lock:
            if self._index is None or self._index.path_state == path_state(
                self._environment.get("HAMI_PLUGIN_PATH", "")
            ):
                return False
            fresh = self._fresh_index()
            fresh.keep_loaded(self._index)
            self._index = fresh
            return True

    def names(self) -> dict[str, str]:
        """Return every name that could be meant, with its owner: first-party ones also where not installed."""
        index = self.index()
        names = dict(_first_party.BACKENDS)
        for plugin in index.plugins:
            names.update(dict.fromkeys((*plugin.promised, *plugin.classes), plugin.distribution))
        names.update({known: handle.owner for known, handle in _defined().items()})
        return names

    def knows(self, name: str) -> bool:
        """Say whether `name` is a backend's, installed or of a first-party plugin, without importing any."""
        return name in self.names()

    def records(self, *, load: bool = False) -> list[PluginRecord]:
        """Return one record a plugin; `load` imports every plugin and its classes first."""
        plugins = self.index().plugins
        if load:
            for plugin in plugins:
                self._load_whole(plugin)
        return [self._record(plugin) for plugin in plugins]

    def _record(self, plugin: Plugin) -> PluginRecord:
        return PluginRecord(
            plugin.plugin,
            plugin.distribution,
            plugin.version,
            plugin.abi,
            plugin.state,
            plugin.error,
            plugin.seconds,
            tuple(dict.fromkeys((*plugin.promised, *plugin.classes))),
            tuple(
                pipeline.name
                for owners in self.pipelines().values()
                for pipeline in owners
                if pipeline.distribution == plugin.distribution
            ),
            tuple(self._remarks(plugin)),
        )

    def _remarks(self, plugin: Plugin) -> Iterator[str]:
        if plugin.seconds is not None and plugin.seconds >= SLOW:
            yield messages.slow(plugin.seconds)
        core = {name for name, handle in _defined().items() if handle.owner == CORE}
        for name in dict.fromkeys((*plugin.promised, *plugin.classes)):
            if name in core:
                yield messages.name_of_the_core(name, plugin.distribution)
                continue
            owners = self._distributions(self.index().owners(name))
            if plugin.distribution in owners and len(owners) > 1:
                yield messages.conflict(name, owners).headline

    def _load_whole(self, plugin: Plugin) -> None:
        self._loader.load(plugin)
        for name in plugin.classes:
            try:
                self._loader.class_of(plugin, name)
            except KeyboardInterrupt:
                raise
            except BaseException:  # kept in the plugin's record
                continue

    def backends(self, *, load: bool = False) -> dict[str, BackendInfo]:
        """Return what every name stands for; nothing is imported unless `load` is set."""
        self.records(load=load)
        defined = _defined()
        infos = {handle.name: _info(handle) for handle in defined.values()}
        for plugin in self.index().plugins:
            if plugin.state == "disabled":
                continue
            for name in dict.fromkeys((*plugin.promised, *plugin.classes)):
                if name in defined or (name in infos and name not in plugin.promised):
                    continue  # the bare name means the core's class, then that of the plugin that declares it
                handle = plugin.classes.get(name)
                infos[name] = BackendInfo(name, plugin.distribution)
                if handle is not None and not isinstance(handle, str):
                    infos[name] = _info(handle)
        return dict(sorted(infos.items(), key=lambda pair: (pair[0].lower(), pair[0])))

    def pipelines(self) -> dict[str, list[Pipeline]]:
        """Return the packaged pipelines by name; a name may have several owners."""
        return self.index().pipelines

    def hook(self, name: str) -> Iterator[tuple[PluginRecord, Any]]:
        """Load every plugin and yield each one that implements the hook, with a function that calls it."""
        for plugin in self.index().plugins:
            self._loader.load(plugin)
            if plugin.object is not None and hasattr(plugin.object, name):
                yield self._record(plugin), lambda plugin=plugin, **given: self._loader.ask(name, plugin, **given)


def _defined() -> dict[str, _core.BackendClass]:
    """Return what the core and this process have, by each name that it goes by: S is Sequential."""
    return {name: known for known in _core.defined() for name in (known.name, *known.aliases)}


def _first_party_first(distribution: str) -> tuple[bool, str]:
    return normalised(distribution) not in _first_party.DISTRIBUTIONS, distribution


def _info(handle: _core.BackendClass) -> BackendInfo:
    return BackendInfo(**{field: getattr(handle, field) for field in BackendInfo._fields})


installed = PluginManager()  # those of this process
os.register_at_fork(after_in_child=installed.begin_in_a_fork)
