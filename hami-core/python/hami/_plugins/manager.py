"""The plugins of this process: their index, their records, and the backends that they provide."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

from hami import _core
from hami._errors import BackendNotFound, ConfigError
from hami._plugins import catalog, messages
from hami._plugins.index import Index, path_state
from hami._plugins.loading import Loader
from hami._plugins.plugin import CORE, Pipeline, Plugin
from hami._plugins.records import BackendInfo, PluginRecord, info_of
from hami._plugins.resolver import (
    Resolver,
    defined_names,
    enabled_distributions,
    known_names,
)
from hami._text import printable

SEARCH_TIMEOUT = "10s"  # importing an engine from a cold disk takes some seconds
SLOW_S = 1.0  # a remark names plugins that take longer to load; importing an engine takes about that long


class PluginManager:
    """The plugins of one environment: the index is built from metadata on first use, plugins are loaded on demand."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._lock = threading.Lock()  # guards _index
        self._index: Index | None = None
        self._loader = Loader()

    def reset_locks_after_fork(self) -> None:
        """Replace the locks: the threads that may hold them do not exist in this process."""
        self._lock = threading.Lock()
        self._loader.reset_lock_after_fork()

    def index(self) -> Index:
        """Return the index, which the first call builds."""
        with self._lock:
            if self._index is None:
                self._index = self._build_index()
            return self._index

    def _build_index(self) -> Index:
        return Index(self._environment.get("HAMI_PLUGINS"), self._environment.get("HAMI_PLUGIN_PATH", ""))

    def find(self, name: str, distribution: str = "", providers: Mapping[str, str] | None = None) -> _core.BackendClass:
        """Return the core's handle of the backend `name`, of `distribution` if given; load only the plugin it needs.

        If the name is not found and packages were installed or removed meanwhile, the index is rebuilt first. Raises
        BackendNotFound or PluginError, each with `headline` and `hint`.
        """
        return self._resolve(lambda resolver: resolver.resolve(name, distribution, providers))

    def find_for_device(self, name: str, device: str) -> _core.BackendClass:
        """Return the handle of the backend `name` for memory on a kind of device, such as "cuda"; like `find`."""
        return self._resolve(lambda resolver: resolver.resolve_for_device(name, device))

    def _resolve(self, resolve: Callable[[Resolver], _core.BackendClass]) -> _core.BackendClass:
        try:
            return resolve(self._resolver())
        except BackendNotFound:
            if not self._refresh():
                raise
            return resolve(self._resolver())

    def _resolver(self) -> Resolver:
        text = printable(self._environment.get("HAMI_SEARCH_TIMEOUT") or SEARCH_TIMEOUT)
        timeout = _core.read_duration(text)
        if timeout is None:
            raise messages.invalid_timeout(text)
        return Resolver(self.index(), self._loader, timeout)

    def _refresh(self) -> bool:
        """Rebuild the index if packages were installed or removed; return whether it was rebuilt."""
        with self._lock:
            folders = self._environment.get("HAMI_PLUGIN_PATH", "")
            if self._index is None or self._index.path_state == path_state(folders):
                return False
            fresh = self._build_index()
            fresh.keep_loaded(self._index)
            self._index = fresh
            return True

    def opening(self, extension: str) -> list[Plugin]:
        """Return the plugins that declare an extension of model files; those that are disabled too."""
        found = [plugin for plugin in self.index().plugins if extension in plugin.models]
        return self.opening(extension) if not found and self._refresh() else found

    def names(self) -> dict[str, str]:
        """Return every known name with its distribution, including those of the catalogue."""
        return known_names(self.index())

    def knows(self, name: str) -> bool:
        """Return whether `name` is the name of a backend, installed or in the catalogue. No plugin is imported."""
        return name in self.names()

    def why_unused(self, distribution: str) -> str:
        """Return why nothing of a distribution is used, as the end of a sentence; empty if its plugin is used."""
        for plugin in self.index().of(distribution):
            reason = plugin.error or ""
            return {"disabled": f"is {reason}", "failed": f"failed to load: {reason}"}.get(plugin.state, reason)
        return f"is not installed: {messages.install_command(distribution)}"

    def records(self, *, load: bool = False) -> list[PluginRecord]:
        """Return the record of every plugin; `load` imports every plugin and its classes first."""
        plugins = self.index().plugins
        if load:
            for plugin in plugins:
                self._load_with_classes(plugin)
        return [self._record(plugin) for plugin in plugins]

    def _load_with_classes(self, plugin: Plugin) -> None:
        self._loader.load(plugin)
        for name, device in [*((name, "") for name in plugin.classes), *plugin.for_devices]:
            try:
                self._loader.class_of(plugin, name, device)
            except KeyboardInterrupt:
                raise
            except BaseException:  # the record of the plugin contains it
                continue

    def _record(self, plugin: Plugin) -> PluginRecord:
        packaged = [pipeline for pipelines in self.pipelines().values() for pipeline in pipelines]
        return PluginRecord(
            plugin=plugin.plugin,
            distribution=plugin.distribution,
            version=plugin.version,
            abi=plugin.abi,
            state=plugin.state,
            error=plugin.error,
            seconds=plugin.seconds,
            backends=tuple(plugin.names),
            pipelines=tuple(each.name for each in packaged if each.distribution == plugin.distribution),
            remarks=tuple(self._remarks(plugin)),
            since=plugin.since,
        )

    def _remarks(self, plugin: Plugin) -> Iterator[str]:
        if plugin.error:
            return
        if plugin.seconds is not None and plugin.seconds >= SLOW_S:
            yield messages.slow(plugin.seconds)
        core_names = {name for name, handle in defined_names().items() if handle.owner == CORE}
        if shadowed := [name for name in plugin.names if name in core_names]:
            yield messages.names_of_core(shadowed, plugin.distribution)
        for name in plugin.names:
            if name in core_names:
                continue
            owners = enabled_distributions(self.index().owners(name))
            if plugin.distribution in owners and len(owners) > 1:
                yield messages.conflict(name, owners).headline

    def backends(self, *, load: bool = False) -> dict[str, BackendInfo]:
        """Return the description of every name; `load` imports every plugin and its classes first."""
        self.records(load=load)
        defined = defined_names()
        infos = {handle.name: info_of(handle) for handle in defined.values()}
        for plugin in self.index().plugins:
            if plugin.state == "disabled":
                continue
            for name in plugin.names:
                if name in defined or (name in infos and name not in plugin.declared):
                    continue  # without a qualifier, the name is that of the core, else of the plugin that declares it
                handle = plugin.classes.get(name)
                infos[name] = BackendInfo(name, plugin.distribution)
                if handle is not None and not isinstance(handle, str):
                    infos[name] = info_of(handle)._replace(name=name)
            for (name, _), handle in plugin.for_devices.items():
                shown = f"{plugin.distribution}::{name}"
                infos[shown] = BackendInfo(shown, plugin.distribution)
                if not isinstance(handle, str):
                    infos[shown] = info_of(handle)._replace(name=shown)
        return dict(sorted(infos.items(), key=lambda pair: (pair[0].lower(), pair[0])))

    def pipelines(self) -> dict[str, list[Pipeline]]:
        """Return the packaged pipelines by name; several distributions may package one of the same name."""
        return self.index().pipelines

    def hook(self, name: str, distributions: Container[str] | None = None) -> Iterator[tuple[PluginRecord, Any]]:
        """Load plugins, and yield the record of each one with this hook and a function that calls the hook.

        Args:
            name: the name of the hook.
            distributions: the plugins of these are loaded; None: every plugin is.
        """
        for plugin in self.index().plugins:
            if distributions is not None and plugin.distribution not in distributions:
                continue
            self._loader.load(plugin)
            if plugin.object is not None and hasattr(plugin.object, name):
                yield self._record(plugin), lambda plugin=plugin, **given: self._loader.call_hook(name, plugin, **given)

    def hook_of_tools(self, name: str, wanted_by: str) -> Any:
        """Return the function that calls a hook of the package with the tools; the error names the package."""
        (owner,) = catalog.first_party().owners("commands")["install"]
        for _, call in self.hook(name, (owner,)):
            return call
        raise ConfigError(f"{wanted_by} needs {owner}, which {self.why_unused(owner) or 'is too old'}")

    def answer(self, record: PluginRecord, hook: Any, name: str, about: str, /, **given: Any) -> Any:
        """Return what a hook answers for a configuration.

        Args:
            record, hook: what `hook` yields.
            name: the name of the hook.
            about: what the hook is asked about, for the message of an error.
            given: the arguments of the hook.

        Raises:
            ConfigError: The hook failed. A ConfigError of the hook is raised as it is.
        """
        try:
            return hook(**given)
        except (ConfigError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a plugin may even call sys.exit
            reason = messages.describe_exception(error)
            raise ConfigError(
                f"{name} of {record.distribution} {record.version} failed for {about}: {reason}"
            ) from error

    def advice_on_key(self, key: str) -> str:
        """Return the hint of the first plugin that has one for a key that nothing uses; empty without one."""
        for _, call in self.hook("hami_unknown_key"):
            try:
                hint = call(key=key)
            except KeyboardInterrupt:
                raise
            except BaseException:  # a hook that fails must not hide which key is wrong
                continue
            if hint:
                return str(hint)
        return ""


installed = PluginManager()
os.register_at_fork(after_in_child=installed.reset_locks_after_fork)
