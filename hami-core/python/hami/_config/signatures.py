"""signature: the inputs and outputs of a pipeline that is nothing but an engine."""

from __future__ import annotations

from collections.abc import Mapping
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
    if not owner or any(child["distribution"] != owner for child in backend["children"]):  # but a default child
        return None
    from hami._plugins.manager import installed

    for record, hook in installed.hook("hami_signature", {owner}):
        given = {"backend": backend["class"], "params": backend["params"]}
        found: dict[str, Any] | None = installed.answer(record, hook, "hami_signature", backend["class"], **given)
        if found:
            return found
    return None
