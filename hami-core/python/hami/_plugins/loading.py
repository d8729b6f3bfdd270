"""Loads plugins: imports the entry module, calls its hook `hami_register`, and records the result."""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import pluggy

from hami import _core
from hami._backends.base import Backend
from hami._backends.description import check_name
from hami._backends.registration import make_class, make_generated
from hami._errors import PluginError
from hami._plugins.plugin import Library, Plugin, load_library
from hami._plugins.recorded_files import check_library, require_whole
from hami._text import printable

Key = TypeVar("Key")
hookspec = pluggy.HookspecMarker("hami")


class HookSpecs:
    """The hooks of a plugin's entry module. The implementations are marked with `pluggy.HookimplMarker("hami")`."""

    @hookspec
    def hami_register(self, registry: Registry) -> None:
        """Register the plugin's backends."""

    @hookspec(firstresult=True)
    def hami_missing_backend(self, name: str) -> str | None:
        """Return a hint, in one line, for a backend name that no package provides, or None."""
        return None

    @hookspec(firstresult=True)
    def hami_unknown_key(self, key: str) -> str | None:
        """Return a hint, in one line, for a key of a node that nothing uses, or None."""
        return None

    @hookspec
    def hami_report(self) -> dict[str, str]:
        """Return lines for `hami doctor`, as a dict from name to value."""
        return {}

    @hookspec
    def hami_problems(self) -> list[str]:
        """Return what `hami doctor` reports as wrong with the installation: lines, each with the remedy."""
        return []

    @hookspec
    def hami_watchdog(self, least_s: float, log: Callable[[str], None]) -> None:
        """Watch the pipes of the process, and log requests that take far longer than usual, and than `least_s`."""

    @hookspec(firstresult=True)
    def hami_result_files(self, folder: Path) -> Callable[..., Path] | None:
        """Return the function that writes an array or bytes of a result into a folder, for `hami run --output`."""
        return None

    @hookspec
    def hami_devices(self) -> dict[str, str]:
        """Return the devices of the plugin's engine, from name to description, for `hami info` and `hami plugins`."""
        return {}

    @hookspec
    def hami_show_file(self, path: str) -> dict[str, Any] | None:
        """Return what `hami show FILE` prints about a file, as a dict from name to value, or None for other files."""
        return None

    @hookspec
    def hami_show_providers(self, path: str) -> dict[str, str] | None:
        """Return what `hami show FILE --providers` adds: what each provider of an engine runs, or None."""
        return None

    @hookspec
    def hami_model_layers(self, path: str) -> dict[str, Any] | None:
        """Return `nodes` and `edges` of a model file for `hami graph FILE`; None for other files."""
        return None

    @hookspec(firstresult=True)
    def hami_open_model(self, path: str) -> dict[str, Any] | None:
        """Return the keys of a node that runs a model file, such as backend and model; None for other files."""
        return None

    @hookspec(firstresult=True)
    def hami_signature(self, backend: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """Return `inputs` and `outputs` of a configured backend: lists of dicts with name, dtype and shape; or None."""
        return None

    @hookspec(firstresult=True)
    def hami_data_type(self, backend: str) -> str | None:
        """Return what `data` of a backend is, "bytes" or "text"; None if it is neither or unknown."""
        return None

    @hookspec
    def hami_show_name(self, name: str) -> tuple[Any, str] | None:
        """Return what `hami show NAME` prints if no file has this name: the values for JSON, and a text."""
        return None

    @hookspec
    def hami_findings(self, backend: str, params: dict[str, Any]) -> list[str]:
        """Return what `hami check` prints about a configured backend of the plugin; one sentence in each line."""
        return []

    @hookspec
    def hami_invariance(self, backend: str, params: dict[str, Any]) -> list[str]:
        """Return the lines of `hami check --invariance` about a configured backend of the plugin, which it may run."""
        return []

    @hookspec
    def hami_commands(self, subparsers: Any) -> None:
        """Add commands to the command line: parsers of argparse with `set_defaults(run=function)`."""

    @hookspec
    def hami_run_options(self, parser: Any) -> None:
        """Add options to `hami run` where a packaged pipeline of the plugin is named, or another `run` function."""


class Registry:
    """The argument of `hami_register`: collects the backends of one plugin."""

    def __init__(self, distribution: str) -> None:
        self._distribution = distribution
        self.classes: dict[str, _core.BackendClass | str] = {}
        self.for_devices: dict[tuple[str, str], _core.BackendClass | str] = {}  # by name and kind of device
        self.libraries: list[Library] = []

    def add(self, backend: Any, target: str | None = None, *, device: str = "") -> None:
        """Register a backend class.

        registry.add(Resize)
        registry.add("Resize", "acme_image.resize:Resize")
        registry.add("Resize", "acme_gpu.resize:Resize", device="cuda")

        Args:
            backend: The class; or its name, if `target` is given.
            target: "module:Class", which is imported when the name is first used.
            device: A kind of device, such as "cuda": the class is then not the backend of its name, but implements a
                name with `by_device` for data on the device. The plugin declares the kind in the entry-point group
                `hami.devices`.

        Raises:
            PluginError: The class or the name is not valid, or the name is registered twice.
        """
        if target is None:
            name = getattr(backend, "__name__", "")
            self._add(name, make_class(backend, name, owner=self._distribution), device)
        elif isinstance(target, str) and target.count(":") == 1:
            self._add(backend, target, device)
        else:
            raise PluginError(
                f'the second argument of registry.add("{backend}", …) must be "module:Class", got {target!r}'
            )

    def generate(self, name: str, expression: str, /, **defaults: Any) -> None:
        """Register a name for an expression, as hami.generate does for one process.

        registry.generate("Thumbnail", "S[DecodeMat,ResizeMat]", width=64, height=64)

        Args:
            name: The name; letters, digits and `_`.
            expression: The expression that replaces the name.
            defaults: Values of parameters that are not configured.
        """
        self._add(name, make_generated(name, expression, defaults, owner=self._distribution))

    def add_library(
        self,
        path: os.PathLike[str] | str,
        defaults: dict[str, Any] | None = None,
        *,
        check: type[Backend] | None = None,
    ) -> None:
        """Register the backends of a native library.

        registry.add_library(Path(__file__).with_name("acme.so"), {"engine": find_engine()})

        Args:
            path: The path of the library, usually a file beside the plugin's modules.
            defaults: Defaults of parameters that are only known where the plugin runs. A default applies to every
                backend of the library that declares the parameter.
            check: A backend class in Python whose `init` runs before each backend of the library is created, and may
                raise; its `forward` never runs. Its annotated attributes are parameters too; those that the backend
                declares have the backend's type and default. None of the backends may take brackets.
        """
        check_library(path, self._distribution)
        library = load_library(path, self._distribution)
        defaults = defaults or {}
        declared = {param["name"] for handle in library.classes for param in handle.params}
        if unknown := [name for name in defaults if name not in declared]:
            raise PluginError(f'no backend of "{printable(path)}" declares the parameter "{unknown[0]}"')
        self.libraries.append(library)
        for handle in library.classes:
            backend = handle.with_defaults(defaults)
            checked = (
                backend.with_check(make_class(check, handle.name, owner=self._distribution, only_checks=True))
                if check
                else backend
            )
            self._add(handle.name, checked, handle.device)

    def _add(self, name: str, backend: _core.BackendClass | str, device: str = "") -> None:
        check_name(name)
        if name in self.classes if not device else (name, device) in self.for_devices:
            raise PluginError(f'"{name}" is registered twice{f" for {device}" if device else ""}')
        if device:
            self.for_devices[name, device] = backend
        else:
            self.classes[name] = backend


class Loader:
    """Loads plugins one by one. A plugin that fails is recorded, and does not affect the others."""

    def __init__(self) -> None:
        self.manager = pluggy.PluginManager("hami")
        self.manager.add_hookspecs(HookSpecs)
        # Guards the manager and the fields of plugins. Never held while a module is imported: an import takes import
        # locks, and an imported module may look up backends.
        self._lock = threading.RLock()
        self._searches: dict[tuple[str, ...], _Search] = {}  # by the identity of the plugin

    def reset_lock_after_fork(self) -> None:
        """Replace the lock: the thread that may hold it does not exist in this process, and no other thread does."""
        self._lock = threading.RLock()
        self._searches = {}

    def load_within(self, plugin: Plugin, timeout: float) -> bool:
        """Load a plugin unless its import takes longer than `timeout` seconds; return whether it was loaded.

        The import runs in a thread of its own, which continues after the timeout. A later call waits only for what is
        left of its own timeout since the import started. A module that cannot be imported there, for example because
        it sets signal handlers, gets another try.
        """
        if plugin.state != "not loaded":
            return True
        search = None if plugin.library else self._search_of(plugin)
        if search is not None and not search.ends_within(timeout):
            return False
        self.load(plugin)
        with self._lock:
            ended = self._searches.pop(plugin.identity, None)
            if ended is not None and plugin.seconds is not None:
                plugin.seconds += ended.seconds
        return True

    def _search_of(self, plugin: Plugin) -> _Search:
        """Return the import of the plugin's module that runs, or that ended after the timeout; start one if needed."""
        with self._lock:
            search = self._searches.get(plugin.identity)
            if search is None:
                search = self._searches[plugin.identity] = _Search(plugin)
                search.start()
            return search

    def load(self, plugin: Plugin) -> None:
        """Load a plugin whose state is "not loaded"; its next state is "ok", "failed" or "incompatible"."""
        if plugin.state != "not loaded":
            return
        started = time.perf_counter()
        try:
            loaded = None if plugin.library else _imported_module(plugin)
            with self._lock:
                if plugin.state == "not loaded":
                    registry = self._register(plugin, loaded)
                    plugin.classes, plugin.for_devices = registry.classes, registry.for_devices
                    plugin.on_demand = {name for name, handle in plugin.classes.items() if isinstance(handle, str)}
                    plugin.abi = ", ".join(sorted({library.abi for library in registry.libraries})) or None
                    releases = [library.since for library in registry.libraries if library.since]
                    plugin.since = max(releases, key=lambda text: [*map(int, text.split("."))], default=None)
                    plugin.seconds = time.perf_counter() - started
                    plugin.succeed(loaded)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may even call sys.exit
            with self._lock:
                if plugin.state == "not loaded":
                    plugin.seconds = time.perf_counter() - started
                    plugin.fail(error)

    def class_of(self, plugin: Plugin, name: str, device: str = "") -> _core.BackendClass:
        """Return the core's handle of a registered class, or of one for a device. The first call imports the class."""
        if not device:
            return self._imported(plugin, plugin.classes, name, name)
        handle = self._imported(plugin, plugin.for_devices, (name, device), name)
        return handle if handle.device else handle.for_device(device)

    def _imported(
        self, plugin: Plugin, classes: dict[Key, _core.BackendClass | str], key: Key, name: str
    ) -> _core.BackendClass:
        backend = classes[key]
        if not isinstance(backend, str):
            return backend
        try:
            handle = make_class(import_object(backend), name, owner=plugin.distribution)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            with self._lock:
                plugin.failures[name] = error
            raise
        with self._lock:
            plugin.failures.pop(name, None)
            current = classes[key]
            if not isinstance(current, str):  # another thread was faster
                return current
            classes[key] = handle
            return handle

    def call_hook(self, hook: str, plugin: Plugin, **arguments: Any) -> Any:
        """Call a hook of one loaded plugin."""
        return self._caller(hook, plugin.object)(**arguments)

    def _register(self, plugin: Plugin, loaded: Any) -> Registry:
        """Call hami_register of the plugin, or load its library; return the registry with its backends."""
        registry = Registry(plugin.distribution)
        if plugin.library:
            registry.add_library(plugin.library)
            plugin.version = registry.libraries[0].version
            return registry
        if self.manager.is_registered(loaded):  # from a previous index
            self.manager.unregister(loaded)
        self.manager.register(loaded, name=f"{plugin.distribution}/{plugin.plugin}")
        try:
            self._caller("hami_register", loaded)(registry=registry)
            missing = [name for name in plugin.declared if name not in registry.classes]
            if missing:
                raise PluginError(_not_registered(plugin, loaded, missing))
            for name, device in registry.for_devices:
                if device not in plugin.devices:
                    raise PluginError(
                        f'it implements {name} for "{device}", which its metadata does not declare in the entry-point '
                        "group hami.devices"
                    )
        except BaseException:
            self.manager.unregister(loaded)
            raise
        return registry

    def _caller(self, hook: str, loaded: Any) -> Callable[..., Any]:
        """Return a function that calls the hook of one plugin only."""
        others = [other for other in self.manager.get_plugins() if other is not loaded]
        return self.manager.subset_hook_caller(hook, others)


class _Search(threading.Thread):
    """Imports the module of a plugin that may have a name which its metadata do not declare."""

    def __init__(self, plugin: Plugin) -> None:
        super().__init__(name=f"hami: import of {plugin.module}", daemon=True)
        self._plugin = plugin
        self._begun = monotonic()
        self.seconds = 0.0  # that the import took

    def run(self) -> None:
        with suppress(BaseException):  # loading the plugin raises it again
            _imported_module(self._plugin)
        self.seconds = monotonic() - self._begun

    def ends_within(self, timeout: float) -> bool:
        """Wait for the end, but not after the import has taken `timeout` seconds; return whether it has ended."""
        self.join(max(0.0, self._begun + timeout - monotonic()))
        return not self.is_alive()


def _not_registered(plugin: Plugin, loaded: Any, missing: list[str]) -> str:
    names = ", ".join(f'"{name}"' for name in missing)
    text = f"its metadata declares {names}, which {plugin.module} does not register"
    if hasattr(loaded, "hami_register") and not hasattr(loaded.hami_register, "hami_impl"):
        text += '; its hami_register lacks the decorator @pluggy.HookimplMarker("hami")'
    return text


def _imported_module(plugin: Plugin) -> Any:
    """Import the module of a plugin, after the check of its files if that is asked for."""
    if plugin.checks_files:
        require_whole(plugin.distribution)
    return import_object(plugin.module)


def import_object(place: str) -> Any:
    """Import "package.module" or "package.module:name.of.object"."""
    module_name, _, path = place.partition(":")
    found = importlib.import_module(module_name)
    for part in path.split(".") if path else ():
        found = getattr(found, part)
    return found
