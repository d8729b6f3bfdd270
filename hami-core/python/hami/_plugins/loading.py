"""Loads one plugin: imports its entry module, lets it register its backends, and keeps a record of how that went."""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pluggy

from hami import _core
from hami._errors import PluginError
from hami._plugins import native_loading as _native_loading
from hami._plugins.index import Plugin
from hami._runtime.backend import make_class, make_generated
from hami._runtime.backend_class import check_name

hookspec = pluggy.HookspecMarker("hami")


class HookSpecs:
    """The hooks that a plugin's entry module may implement, marked with pluggy.HookimplMarker("hami")."""

    @hookspec
    def hami_register(self, registry: Registry) -> None:
        """Register the plugin's backends."""

    @hookspec(firstresult=True)
    def hami_missing_backend(self, name: str) -> str | None:
        """Return one line of advice for a missing backend, or None."""
        return None

    @hookspec
    def hami_report(self) -> dict[str, str]:
        """Return lines for `hami doctor`: name and value."""
        return {}

    @hookspec
    def hami_commands(self, subparsers: Any) -> None:
        """Add commands to the command line: argparse parsers with set_defaults(run=function_of_args)."""


class Registry:
    """What `hami_register` gets: collects the backends of one plugin."""

    def __init__(self, distribution: str) -> None:
        self._distribution = distribution
        self.classes: dict[str, _core.BackendClass | str] = {}
        self.libraries: list[_native_loading.Library] = []

    def add(self, backend: Any, target: str | None = None) -> None:
        """Register a class, or a name with the "module:Class" that is imported when the name is first used."""
        if target is None:
            name = getattr(backend, "__name__", "")
            self._add(name, make_class(backend, name, owner=self._distribution))
        elif isinstance(target, str) and target.count(":") == 1:
            self._add(backend, target)
        else:
            raise PluginError(f'registry.add("{backend}", …) takes "module:Class" as second argument, got {target!r}')

    def generate(self, name: str, expression: str, /, **defaults: Any) -> None:
        """Register a name that stands for an expression, as hami.generate does for one process.

        registry.generate("Thumbnail", "S[DecodeMat,ResizeMat]", width=64, height=64)
        """
        self._add(name, make_generated(name, expression, defaults, owner=self._distribution))

    def add_library(self, path: os.PathLike[str] | str, defaults: dict[str, Any] | None = None) -> None:
        """Register the backends of a native library, a file beside the plugin's modules.

            registry.add_library(Path(__file__).with_name("acme.so"), {"engine": find_engine()})

        `defaults` are for parameters, of whichever of its backends declare them, whose default is only known where the
        plugin runs.
        """
        library = _native_loading.load(path, self._distribution)
        defaults = defaults or {}
        declared = {param["name"] for handle in library.classes for param in handle.params}
        if unknown := [name for name in defaults if name not in declared]:
            raise PluginError(f'no backend of "{_native_loading.shown(path)}" declares a parameter "{unknown[0]}"')
        self.libraries.append(library)
        for handle in library.classes:
            self._add(handle.name, handle.with_defaults(defaults))

    def _add(self, name: str, backend: _core.BackendClass | str) -> None:
        check_name(name)
        if name in self.classes:
            raise PluginError(f'"{name}" is registered twice')
        self.classes[name] = backend


class Loader:
    """Loads plugins one by one; a plugin that fails is recorded and hides no other."""

    def __init__(self) -> None:
        self.manager = pluggy.PluginManager("hami")
        self.manager.add_hookspecs(HookSpecs)
        # Guards the manager and the fields of plugins. Never held while a module is imported: that takes import locks,
        # and an importing module may ask for backends.
        self._lock = threading.RLock()

    def begin_in_a_fork(self) -> None:
        """Release the lock, whose holder does not exist in this process."""
        self._lock = threading.RLock()

    def load(self, plugin: Plugin) -> None:
        """Bring the plugin from `unused` to its final state; does nothing if it has one."""
        if plugin.state != "not loaded":
            return
        started = time.perf_counter()
        try:
            loaded = None if plugin.library else import_object(plugin.module)
            with self._lock:
                if plugin.state == "not loaded":
                    registry = self._register(plugin, loaded)
                    plugin.classes = registry.classes
                    plugin.abi = ", ".join(sorted({library.abi for library in registry.libraries})) or None
                    plugin.seconds = time.perf_counter() - started
                    plugin.succeed(loaded)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may even call sys.exit
            with self._lock:
                if plugin.state == "not loaded":
                    plugin.seconds = time.perf_counter() - started
                    plugin.fail(error)

    def class_of(self, plugin: Plugin, name: str) -> _core.BackendClass:
        """Return the core's handle of a registered class; the first use imports it, and raises what that raises."""
        backend = plugin.classes[name]
        if not isinstance(backend, str):
            return backend
        try:
            made = make_class(import_object(backend), name, owner=plugin.distribution)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            with self._lock:
                plugin.failures[name] = error
            raise
        with self._lock:
            plugin.failures.pop(name, None)
            faster = plugin.classes[name]  # another thread's
            if isinstance(faster, str):
                plugin.classes[name] = faster = made
            return faster

    def ask(self, hook: str, plugin: Plugin, **arguments: Any) -> Any:
        """Call one hook of one loaded plugin."""
        return self._caller(hook, plugin.object)(**arguments)

    def _register(self, plugin: Plugin, loaded: Any) -> Registry:
        """Call hami_register of this one plugin, or load the library that it is; return what it registered."""
        registry = Registry(plugin.distribution)
        if plugin.library:
            registry.add_library(plugin.library)
            plugin.version = registry.libraries[0].version
            return registry
        if self.manager.is_registered(loaded):  # by an earlier index
            self.manager.unregister(loaded)
        self.manager.register(loaded, name=f"{plugin.distribution}/{plugin.plugin}")
        try:
            self._caller("hami_register", loaded)(registry=registry)
            missing = [name for name in plugin.promised if name not in registry.classes]
            if missing:
                raise PluginError(_promise_broken(plugin, loaded, missing))
        except BaseException:
            self.manager.unregister(loaded)
            raise
        return registry

    def _caller(self, hook: str, loaded: Any) -> Callable[..., Any]:
        others = [other for other in self.manager.get_plugins() if other is not loaded]
        return self.manager.subset_hook_caller(hook, others)


def _promise_broken(plugin: Plugin, loaded: Any, missing: list[str]) -> str:
    names = ", ".join(f'"{name}"' for name in missing)
    text = f"its metadata promises {names}, which {plugin.module} does not register"
    if hasattr(loaded, "hami_register") and not hasattr(loaded.hami_register, "hami_impl"):
        text += '; its hami_register lacks the mark @pluggy.HookimplMarker("hami")'
    return text


def import_object(place: str) -> Any:
    """Import "package.module" or "package.module:name.of.object"."""
    module_name, _, path = place.partition(":")
    found = importlib.import_module(module_name)
    for part in path.split(".") if path else ():
        found = getattr(found, part)
    return found
