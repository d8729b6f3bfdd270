"""Model files as sources: the plugin that declares the extension of a file returns the keys of a node that runs it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from hami._config.document import Document, Entry
from hami._errors import ConfigError
from hami._text import printable

if TYPE_CHECKING:
    from hami._plugins.records import PluginRecord

FOLDER = "model-folder"  # what a plugin declares instead of an extension, if it knows a layout of folders
_EXTENSION = re.compile(r"\.([A-Za-z0-9]+)$")  # no expression ends like this


def model_file(source: Any) -> str | None:
    """Return the path of a source that is a model file: its extension is declared by a plugin that is known."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    path = os.fsdecode(os.fspath(source))
    extension = _extension(path)
    if not extension or extension == "toml":
        return None
    from hami._plugins import catalog
    from hami._plugins.manager import installed

    return path if installed.opening(extension) or extension in catalog.load_local().owners("models") else None


def not_an_expression(path: str) -> ConfigError:
    """Return the error of an existing file or folder that is given as a source and is neither."""
    headline = f'"{path}" is not an expression; the name of a configuration file must end in .toml'
    extension = _extension(path)
    claim = f", and no plugin opens model files that end in .{extension}" if extension else ""
    return ConfigError(headline + claim)


def open_model(document: Document, path: str) -> dict[str, Any]:
    """Add the keys of a model file to the only node, unless it has a backend already.

    Return the keys instead if they name a `source`: the file has a whole configuration.
    """
    node = next(iter(document.nodes.values()))
    keys = {} if "backend" in node.entries else model_keys(path)
    if "source" in keys:
        return keys
    for key, value in keys.items():
        node.entries.setdefault(key, Entry(value))
    return {}


def model_keys(path: str) -> dict[str, Any]:
    """Return the keys of a node that runs a model file, such as `backend` and `model`.

    For a file that contains a whole configuration, they are its `source`, and `accept`.

    Raises:
        ConfigError: The file does not exist, no installed plugin opens it, or several do.
    """
    if not os.path.isfile(path):
        raise ConfigError(f'the model file "{printable(path)}" does not exist')
    choices = _choices(_extension(path), path)
    if len(choices) > 1:
        several = f'"{printable(path)}" can be opened by {" and ".join(choices)}'
        backends = [f"{owner}::{keys['backend']}" for owner, keys in choices.items() if "backend" in keys]
        if not backends:  # each makes a source of the file, which no key chooses
            raise ConfigError(f"{several}; keep one of them: hami uninstall {list(choices)[-1]}")
        written = " or ".join(f'backend = "{each}"' for each in backends)
        raise ConfigError(
            f"{several}; choose with {written}: on the command line "
            f'--set backend={backends[-1]}, in Python {{"backend": "{backends[-1]}", "model": "{printable(path)}"}}'
        )
    return next(iter(choices.values()))


def model_in(folder: str) -> str | None:
    """Return the model file of a folder, or None if no installed plugin knows the layout of the folder.

    Raises:
        ConfigError: A plugin knows the layout, and finds no model file or several.
    """
    from hami._plugins.manager import installed

    names = {plugin.distribution for plugin in installed.opening(FOLDER) if plugin.state != "disabled"}
    for record, hook in installed.hook("hami_open_model", names):
        if keys := _keys_of(record, hook, folder, "model"):
            return str(keys["model"])
    return None


def _keys_of(record: PluginRecord, hook: Any, path: str, *needed: str) -> dict[str, Any] | None:
    """Return the keys that a plugin returns for a file or folder; None: it does not open it."""
    from hami._plugins.manager import installed

    keys = installed.answer(record, hook, "hami_open_model", f'"{printable(path)}"', path=path)
    if keys is None or (isinstance(keys, dict) and (not keys or _has_path(keys, *needed))):
        return keys or None
    raise ConfigError(
        f"hami_open_model of {record.distribution} {record.version} must return a dict with the text "
        f'"{needed[0]}" or None for "{printable(path)}"; it returned {printable(repr(keys))}'
    )


def _has_path(keys: dict[str, Any], *names: str) -> bool:
    return any(isinstance(keys.get(name), (str, os.PathLike)) for name in names)


def _choices(extension: str, path: str) -> dict[str, dict[str, Any]]:
    """Return the keys that each plugin returns for a model file, by distribution."""
    from hami._plugins import catalog, messages
    from hami._plugins.manager import installed

    declaring = installed.opening(extension)
    names = {plugin.distribution for plugin in declaring if plugin.state != "disabled"}
    found = {
        record.distribution: _keys_of(record, hook, path, "backend", "source")
        for record, hook in installed.hook("hami_open_model", names)
    }
    if opened := {name: keys for name, keys in found.items() if keys}:
        return opened
    headline = f'no plugin that is in use opens "{printable(path)}"'
    for plugin in declaring:
        raise ConfigError(
            f"{headline}: {plugin.distribution} {plugin.version}: {plugin.error or 'it does not read it'}"
        )
    owner = catalog.load_local().owners("models")[extension][0]
    raise ConfigError(f"{headline}: {messages.install_command(owner)}")


def _extension(path: str) -> str:
    found = _EXTENSION.search(path)
    return found[1].lower() if found else ""
