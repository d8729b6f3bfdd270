"""The recipe of an engine: everything that determines its content. Engines with equal recipes are interchangeable."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

import hami

from hami_trt._build_options import BuildOptions
from hami_trt._onnx_files import hash_model
from hami_trt._tensorrt import Library

RECIPE_VERSION = 1  # increase it when equal options build another engine than before
_AMPERE = 8.0  # the lowest compute capability of the Ampere generation

Recipe = dict[str, Any]


class Gpu(NamedTuple):
    """Name and compute capability of a GPU."""

    name: str
    compute_capability: str

    def __str__(self) -> str:
        return f"{self.name} (compute capability {self.compute_capability})"


def make_recipe(options: BuildOptions, gpu: Gpu | None) -> Recipe:
    """Return the recipe of a build on this machine, whose GPU is `gpu`."""
    return {
        "recipe_version": RECIPE_VERSION,
        "model": hash_model(options.model, options.owner, options.graph_limits),
        "library": options.library.name,
        "version": options.library.version,
        "gpu": _target(options, gpu),
        "max": options.max,
        "min": options.min,
        "opt": options.opt,
        "profiles": options.profiles,
        "precision": options.precision,
        "mean": list(options.mean),
        "std": list(options.std),
        "workspace": options.workspace,
        "optimization_level": options.optimization_level,
        "version_compatible": options.version_compatible,
        "hardware_compatible": options.hardware_compatible,
    }


def recipe_key(recipe: Recipe) -> str:
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()


def _target(options: BuildOptions, gpu: Gpu | None) -> str | list[str]:
    """Return the GPUs that the engine runs on: a list of compute capabilities, a name, or a class of GPUs."""
    if options.library.builds_for_any_gpu:
        return sorted(options.compute_capability) or "any"
    if gpu is None:
        raise hami.ConfigError(
            f"{options.owner}: {options.library} builds for the GPU of the machine, but this machine has none; build "
            "the engine on the machine that will run it"
        )
    if options.hardware_compatible == "ampere_plus":
        return "ampere_plus"
    if options.hardware_compatible == "same_compute_capability":
        return [gpu.compute_capability]
    return str(gpu)


def describe_differences(expected: Recipe, found: Recipe) -> str:
    """Return the differences of two recipes in one line, for example `max is "4", expected "8"`."""
    return "; ".join(
        f"{name} is {json.dumps(found.get(name))}, expected {json.dumps(expected.get(name))}"
        for name in dict.fromkeys((*expected, *found))
        if expected.get(name) != found.get(name)
    )


def incompatibility(recipe: Recipe, library: Library, gpu: Gpu | None) -> str | None:
    """Return why an engine of this recipe cannot run with this library and GPU; None if it can."""
    built_by = f"{recipe.get('library')} {recipe.get('version')}"
    same_major = str(recipe.get("version")).split(".")[0] == library.version.split(".")[0]
    if recipe.get("library") != library.name or (
        recipe.get("version") != library.version and not (recipe.get("version_compatible") and same_major)
    ):
        return f"it was built by {built_by}, and this machine has {library}"
    target = recipe.get("gpu")
    if gpu is None or target == "any":
        return None
    if target == "ampere_plus":
        runs = float(gpu.compute_capability) >= _AMPERE
    elif isinstance(target, list):
        runs = gpu.compute_capability in target
    else:
        runs = target == str(gpu)
    built_for = f"compute capability {', '.join(target)}" if isinstance(target, list) else target
    return None if runs else f"it was built for {built_for}, and this machine has {gpu}"
