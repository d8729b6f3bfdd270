"""What `hami show` prints about a model of this package's heads."""

from __future__ import annotations

import hami
from hami.config import describe, read_source, signature

from hami_vision.heads import heads_of


def head_of_model(path: str) -> dict[str, str] | None:
    """Return {"head": the heads whose outputs look like those of a model}; None if there are none."""
    try:
        config, problems = read_source(path)
        found = None if problems else signature(describe(config))
    except hami.Error:  # the plugin of the engine says what is wrong with the file
        return None
    heads = heads_of(found) if found else []
    if not heads:
        return None
    hint = "" if len(heads) == 1 else "; `labels`, the file with the names of the classes, or `head` decides"
    return {"head": f"looks like {', '.join(heads)}{hint}"}
