"""Finds an engine in the cache or builds it, for the backends and for `hami compile`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

import hami

from hami_trt._build import build
from hami_trt._build_options import BuildOptions
from hami_trt._cache import StoredEngine, find_or_build, path_in_cache
from hami_trt._onnx_files import hash_model
from hami_trt._recipe import Recipe
from hami_trt._shapes import format_shape

_log = logging.getLogger("hami.trt")


class PreparedEngine(NamedTuple):
    """An engine, its path in the cache (None without a cache), and whether it was built by this call."""

    engine: StoredEngine
    path: Path | None
    built: bool


def prepare_engine(options: BuildOptions, recipe: Recipe, cache: Path | None) -> PreparedEngine:
    """Return the engine of a recipe, from the cache if it is there."""
    if cache is None:
        _log.info("%s: the engine is built at every start; set model::cache to keep it", options.owner)
        return PreparedEngine(_build(options, recipe), None, True)
    path = path_in_cache(cache, options.model, recipe)
    engine, built = find_or_build(path, recipe, lambda: _build(options, recipe), options.owner)
    return PreparedEngine(engine, path, built)


def _build(options: BuildOptions, recipe: Recipe) -> StoredEngine:
    blob, profile_shapes = build(options)
    if hash_model(options.model, options.owner, options.graph_limits) != recipe["model"]:
        raise hami.ConfigError(
            f'{options.owner}: "{options.model}" was replaced while its engine was built; build the engine again'
        )
    shapes = {
        name: {bound: format_shape(shape) for bound, shape in shape_range._asdict().items()}
        for name, shape_range in profile_shapes.items()
    }
    return StoredEngine(blob, recipe, {"model": options.model.name, "shapes": shapes})
