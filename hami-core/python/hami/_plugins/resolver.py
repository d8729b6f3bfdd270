"""Resolves the name of a backend to its class: finds the plugin that provides the name, and loads only that one."""

from __future__ import annotations

from collections.abc import Mapping

from hami import _core
from hami._errors import BackendNotFound
from hami._plugins import catalog, messages
from hami._plugins.index import Index
from hami._plugins.loading import Loader
from hami._plugins.plugin import CORE, Plugin, normalised


class Resolver:
    """Resolves names with one index. Errors are BackendNotFound or PluginError, each with `headline` and `hint`."""

    def __init__(self, index: Index, loader: Loader, timeout: float) -> None:
        """`timeout` is in seconds, for the import of each plugin that does not declare the name that is searched."""
        self._index = index
        self._loader = loader
        self._timeout = timeout

    def resolve(
        self, name: str, distribution: str = "", providers: Mapping[str, str] | None = None
    ) -> _core.BackendClass:
        """Return the core's handle of the backend `name`, of `distribution` or of the provider of the name, if any."""
        wanted = distribution or (providers or {}).get(name, "")
        return self._resolve_in(name, wanted) if wanted else self._resolve_unqualified(name)

    def resolve_for_device(self, name: str, device: str) -> _core.BackendClass:
        """Return what the first plugin that implements `name` for `device`, a kind such as "cuda", registered for it.

        First-party plugins come first, then the alphabet decides. Only plugins that declare the kind are loaded.
        """
        serving = [plugin for plugin in self._index.plugins if device in plugin.devices or plugin.library]
        installed = enabled_distributions(serving)
        for plugin in sorted(serving, key=lambda plugin: (plugin.state == "disabled", *_order(plugin.distribution))):
            if plugin.state == "disabled":
                continue
            if found := self._class_for_device(plugin, name, device):
                return found
        plugins = catalog.load_local().plugins
        known = [each for each, entry in plugins.items() if device in entry.devices and each not in installed]
        raise messages.no_device(name, device, max(known, key=lambda each: len(plugins[each].backends), default=""))

    def _class_for_device(self, plugin: Plugin, name: str, device: str) -> _core.BackendClass | None:
        self._loader.load(plugin)
        if plugin.exception is None and (name, device) not in plugin.for_devices:
            return None
        return self._class_of(plugin, name, device)

    def _resolve_unqualified(self, name: str) -> _core.BackendClass:
        """Return the class of any plugin.

        Plugins that declare the name in their metadata come first; only if there are none, all others are loaded.
        """
        found = self._class_of_owner(name, self._index.owners(name))
        unsearched: list[tuple[str, str]] = []
        if found is None:
            unsearched = self._search(self._index.plugins)
            found = self._class_of_owner(name, self._index.owners(name))
        if found is None:  # only disabled plugins declare it
            declaring = [plugin for plugin in self._index.plugins if name in plugin.declared]
            found = self._class_of_owner(name, declaring)
        if found is None:
            raise messages.not_searched(self._not_found(name), unsearched, self._timeout)
        return found

    def _search(self, plugins: list[Plugin]) -> list[tuple[str, str]]:
        """Load plugins that may have registered a name; return distribution and version of those that take too long."""
        slow = [plugin for plugin in plugins if not self._loader.load_within(plugin, self._timeout)]
        return [(plugin.distribution, plugin.version) for plugin in slow]

    def _resolve_in(self, name: str, distribution: str) -> _core.BackendClass:
        if normalised(distribution) == CORE:
            return _class_of_core(name)
        plugins = self._index.of(distribution)
        if not plugins:
            raise messages.no_such_distribution(
                name,
                distribution,
                sorted({plugin.distribution for plugin in self._index.plugins}),
                first_party=normalised(distribution) in catalog.first_party().plugins,
            )
        declared = any(name in plugin.declared for plugin in plugins)
        unsearched = [] if declared else self._search(plugins)
        found = self._class_of_owner(name, [plugin for plugin in plugins if name in plugin.names])
        if found is None:
            found = self._only_class_for_devices(name, plugins)
        if found is None:
            names = sorted({known for plugin in plugins for known in plugin.names})
            raise messages.not_searched(
                messages.unknown_in(name, plugins[0].distribution, names), unsearched, self._timeout
            )
        return found

    def _only_class_for_devices(self, name: str, plugins: list[Plugin]) -> _core.BackendClass | None:
        """Return what the plugins of one distribution registered for `name` and one device."""
        keys = [(plugin, key) for plugin in plugins for key in plugin.for_devices if key[0] == name]
        return self._class_of(keys[0][0], *keys[0][1]) if len(keys) == 1 else None

    def _class_of_owner(self, name: str, owners: list[Plugin]) -> _core.BackendClass | None:
        """Return the class if exactly one distribution provides the name, None if there is no owner."""
        distributions = enabled_distributions(owners)
        if len(distributions) > 1:
            raise messages.conflict(name, distributions)
        for plugin in owners:
            if plugin.distribution in distributions and plugin.state != "disabled":
                return self._class_of(plugin, name)
        if owners:
            raise messages.disabled(name, owners[0].distribution, owners[0].disabled_by)
        return None

    def _class_of(self, plugin: Plugin, name: str, device: str = "") -> _core.BackendClass:
        self._loader.load(plugin)
        if (name, device) not in plugin.for_devices if device else name not in plugin.classes:
            report = messages.incompatible if plugin.state == "incompatible" else messages.failed
            raise report(name, plugin.distribution, plugin.version, plugin.error or "") from plugin.exception
        try:
            return self._loader.class_of(plugin, name, device)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may even call sys.exit
            reason = messages.describe_exception(error)
            raise messages.failed(name, plugin.distribution, plugin.version, reason) from error

    def _not_found(self, name: str) -> BackendNotFound:
        if owners := catalog.load_local().owners("backends").get(name):
            return messages.not_installed(name, owners)
        for plugin in self._index.plugins:
            if plugin.object is None:
                continue
            try:
                hint = self._loader.call_hook("hami_missing_backend", plugin, name=name)
            except KeyboardInterrupt:
                raise
            except BaseException:  # a hook that fails must not hide which name is wrong
                continue
            if hint:
                return messages.not_found_with_advice(name, str(hint))
        return messages.unknown(name, known_names(self._index))


def known_names(index: Index) -> dict[str, str]:
    """Return every known name with its distribution, including those of plugins that are in the catalogue."""
    names = {name: owners[0] for name, owners in catalog.load_local().owners("backends").items()}
    for plugin in index.plugins:
        names.update(dict.fromkeys(plugin.names, plugin.distribution))
    names.update({known: handle.owner for known, handle in defined_names().items()})
    return names


def defined_names() -> dict[str, _core.BackendClass]:
    """Return the classes of the core and of this process by each of their names; S is an alias of Sequential."""
    return {name: handle for handle in _core.defined() for name in (handle.name, *handle.aliases)}


def enabled_distributions(plugins: list[Plugin]) -> list[str]:
    """Return the distributions of the plugins that are not disabled, first-party ones first."""

    return sorted({plugin.distribution for plugin in plugins if plugin.state != "disabled"}, key=_order)


def _order(distribution: str) -> tuple[bool, str]:
    return normalised(distribution) not in catalog.first_party().plugins, distribution


def _class_of_core(name: str) -> _core.BackendClass:
    own = {known: handle for known, handle in defined_names().items() if handle.owner == CORE}
    if name in own:
        return own[name]
    raise messages.unknown_in(name, CORE, [known for known, handle in own.items() if known == handle.name])
