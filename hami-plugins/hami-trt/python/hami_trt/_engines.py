"""From parameters to an engine that is found or built; what the backends and `hami compile` share."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

import hami

from hami_trt._build import build
from hami_trt._cache import Stored, find_or_build, place_of
from hami_trt._onnx_files import hash_of
from hami_trt._options import Options
from hami_trt._recipe import Recipe
from hami_trt._shapes import text_of

_log = logging.getLogger("hami.trt")


class Found(NamedTuple):
    """An engine, where it is kept (None: nowhere), and whether it was built just now."""

    engine: Stored
    path: Path | None
    new: bool


def engine_of(options: Options, recipe: Recipe, cache: Path | None) -> Found:
    """Return the engine of a recipe, from the cache if it is there."""
    if cache is None:
        _log.info("%s: the engine is built anew at every start; model::cache names where to keep it", options.owner)
        return Found(_built(options, recipe), None, True)
    path = place_of(cache, options.model, recipe)
    engine, new = find_or_build(path, recipe, lambda: _built(options, recipe), options.owner)
    return Found(engine, path, new)


def _built(options: Options, recipe: Recipe) -> Stored:
    blob, ranges = build(options)
    if hash_of(options.model, options.owner) != recipe["model"]:
        raise hami.ConfigError(
            f'{options.owner}: "{options.model}" was replaced while its engine was built, which may be of either; '
            "start again"
        )
    shapes = {name: {which: text_of(shape) for which, shape in each._asdict().items()} for name, each in ranges.items()}
    return Stored(blob, recipe, {"model": options.model.name, "shapes": shapes})
