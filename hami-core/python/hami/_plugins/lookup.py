"""Lists backends and plugins, and finds backends for the core. The plugin manager is imported on first use."""

from __future__ import annotations

from hami import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from hami._plugins.records import BackendInfo, PluginRecord


def backends(*, load: bool = False) -> dict[str, BackendInfo]:
    """Return every backend that an expression can use in this process, by name.

    >>> hami.backends()["Identity"].owner
    'hami-core'

    Args:
        load: Whether to import every plugin, so that its backends have `doc`, `params` and the other fields that only
            the class knows. Otherwise these fields are None until the plugin is loaded.
    """
    from hami._plugins.manager import installed

    return installed.backends(load=load)


def plugins(*, load: bool = False) -> list[PluginRecord]:
    """Return a record of every installed plugin.

    >>> [plugin.distribution for plugin in hami.plugins() if plugin.state == "failed"]
    []

    Args:
        load: Whether to import every plugin first, which sets its `state`.
    """
    from hami._plugins.manager import installed

    return installed.records(load=load)


def devices() -> Iterator[tuple[str, str]]:
    """Load plugins, and yield the devices of their engines; the error of a hook is one of them."""
    from hami._plugins.manager import installed
    from hami._plugins.messages import describe_exception

    for plugin, hook in installed.hook("hami_devices"):
        try:
            for found in hook():
                yield from found.items()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may even call sys.exit
            yield f"hami_devices of {plugin.distribution}", describe_exception(error)


def _find(name: str, distribution: str, providers: dict[str, str]) -> _core.BackendClass:
    from hami._plugins.manager import installed

    return installed.find(name, distribution, providers)


def _find_for_device(name: str, device: str) -> _core.BackendClass:
    from hami._plugins.manager import installed

    return installed.find_for_device(name, device)


def advice_on_key(key: str) -> str:
    """Return the hint of a plugin for a key that nothing uses; empty without one."""
    from hami._plugins.manager import installed

    return installed.advice_on_key(key)


_core.set_finder(_find)
_core.set_device_finder(_find_for_device)
