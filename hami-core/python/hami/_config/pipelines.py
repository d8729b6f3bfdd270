"""Finds the pipelines that installed plugins package."""

from __future__ import annotations

import os
import re

from hami import _core
from hami._errors import BackendNotFound, ConfigError, PluginError
from hami._plugins import first_party as _first_party
from hami._plugins import manager, messages
from hami._plugins.index import Pipeline, normalised

_NAME = re.compile(r"(?:([A-Za-z0-9][A-Za-z0-9._-]*)::)?([A-Za-z0-9_.-]+)")


def find_pipeline(name: str, distribution: str) -> Pipeline | None:
    """Return the packaged pipeline, or None if the name is a backend's after all; raise if it is neither."""
    found = _lookup(name, distribution)
    if found or distribution:
        return found  # without one, the core says what the distribution has
    try:
        manager.installed.find(name)  # a plugin may have it without saying so in its metadata
    except PluginError:
        return None  # the core shows it with the expression
    except BackendNotFound:
        if os.path.exists(name):
            raise ConfigError(f'"{name}" is not an expression; a configuration file ends in .toml') from None
        raise messages.pipeline_not_found(
            name, sorted(manager.installed.pipelines()), list(manager.installed.names())
        ) from None
    return None


def pipeline_of(text: str) -> Pipeline:
    """Return the packaged pipeline that `name` or `distribution::name` names; raise if there is none."""
    parts = _NAME.fullmatch(text)
    found = _lookup(parts.group(2), parts.group(1) or "") if parts else None
    if found:
        return found
    names = sorted(manager.installed.pipelines())
    near = _core.did_you_mean(_core.near_names(text, names), quoted=True)
    raise ConfigError(f'"{text}" is neither a file that ends in .toml nor a packaged pipeline{near}')


def _lookup(name: str, distribution: str) -> Pipeline | None:
    found = manager.installed.pipelines().get(name, [])
    if distribution:
        found = [one for one in found if normalised(one.distribution) == normalised(distribution)]
    if len(found) > 1:
        raise messages.pipeline_conflict(name, [one.distribution for one in found])
    if found:
        return found[0]
    if not distribution and name in _first_party.PIPELINES:
        raise messages.pipeline_not_installed(name, _first_party.PIPELINES[name])
    return None
