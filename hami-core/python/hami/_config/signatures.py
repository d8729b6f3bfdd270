"""What a pipeline takes: the inputs and outputs of one that is nothing but an engine, and the type of its `data`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def signature(description: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return `inputs` and `outputs` of a described pipeline, lists of dicts with name, dtype and shape, or None.

    They are known if the pipeline has one node with one backend, whose plugin implements `hami_signature`.

    Args:
        description: What `hami.config.describe` or `describe` of a pipe returns.

    Raises:
        ConfigError: The hook failed.
    """
    nodes = list(description["nodes"].values())
    if len(nodes) != 1 or len(nodes[0]["backends"]) != 1:
        return None
    (backend,) = nodes[0]["backends"]
    owner = backend["distribution"]
    if any(child["distribution"] != owner for child in backend["children"]):  # but a default child
        return None
    found: dict[str, Any] | None = _ask("hami_signature", backend, params=backend["params"])
    return found


def data_type(description: Mapping[str, Any]) -> str | None:
    """Return what `data` of a described pipeline is, "bytes" or "text"; None if it is neither or unknown.

    The plugin of the first backend says it, with `hami_data_type`.

    Args:
        description: What `hami.config.describe` or `describe` of a pipe returns.

    Raises:
        ConfigError: The hook failed.
    """
    found: Iterator[str | None] = (_ask("hami_data_type", each) for each in _first_backends(description))
    return next(filter(None, found), None)


def _first_backends(description: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the first backend of each node that requests enter, and those that are first in its brackets."""
    nodes = description["nodes"]
    later = {name for node in nodes.values() for name in node["next"]}
    for name, node in nodes.items():
        backends = node["backends"] if name not in later else ()
        while backends:
            yield backends[0]
            backends = backends[0]["children"]


def _ask(hook_name: str, backend: Mapping[str, Any], **given: Any) -> Any:
    """Return what the plugin of a described backend answers about it, or None."""
    from hami._plugins.manager import installed

    if not backend["distribution"]:
        return None
    for record, hook in installed.hook(hook_name, {backend["distribution"]}):
        found = installed.answer(record, hook, hook_name, backend["class"], backend=backend["class"], **given)
        if found:
            return found
    return None
