"""Finds packaged pipelines by name."""

from __future__ import annotations

import os

from hami._config import qualified_name
from hami._config.model_files import not_an_expression
from hami._errors import BackendNotFound, ConfigError, PluginError
from hami._plugins import catalog, manager, messages
from hami._plugins.plugin import Pipeline, normalised
from hami._text import did_you_mean


def find_pipeline(name: str, distribution: str) -> Pipeline | None:
    """Return the packaged pipeline, or None if the name is that of a backend; raise an error if it is neither."""
    found = _lookup(name, distribution)
    if found or distribution:
        return found  # the core reports that the distribution does not have the name
    try:
        manager.installed.find(name)  # a plugin may register it without declaring it in its metadata
    except PluginError:
        return None  # the core raises it again, with the expression
    except BackendNotFound as error:
        if not error.advice and os.path.exists(name):
            raise not_an_expression(name) from None
        missing = messages.pipeline_not_found(
            name, error.advice, sorted(manager.installed.pipelines()), list(manager.installed.names())
        )
        raise messages.with_unsearched(missing, error.unsearched) from None
    return None


def is_pipeline(text: str) -> bool:
    """Return whether a text is the name of an installed packaged pipeline."""
    parts = qualified_name.split(text)
    return parts is not None and bool(manager.installed.pipelines().get(parts[1]))


def pipeline_of(text: str) -> Pipeline:
    """Return the packaged pipeline that `name` or `distribution::name` names; raise an error if there is none."""
    parts = qualified_name.split(text)
    if parts:
        distribution, name = parts
        if found := _lookup(name, distribution):
            return found
    names = sorted(manager.installed.pipelines())
    near = did_you_mean(text, names, quoted=True)
    raise ConfigError(f'"{text}" is neither the name of a .toml file nor of a packaged pipeline{near}')


def _lookup(name: str, distribution: str) -> Pipeline | None:
    found = manager.installed.pipelines().get(name, [])
    if distribution:
        found = [pipeline for pipeline in found if normalised(pipeline.distribution) == normalised(distribution)]
    if len(found) > 1:
        raise messages.pipeline_conflict(name, [pipeline.distribution for pipeline in found])
    if found:
        return found[0]
    owners = catalog.load_local().owners("pipelines").get(name, [])
    if owners and not distribution:
        raise messages.pipeline_not_installed(name, owners)
    return None
