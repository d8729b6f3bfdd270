"""What an engine was made from and for: its key, and the readable file beside the engine, X.trt.json.

The recipe is all that decides what an engine is. Two equal recipes are one engine; another one is never taken for it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

import hami

from hami_trt._onnx_files import hash_of
from hami_trt._options import Options
from hami_trt._tensorrt import Library

RULES = 1  # raised when the same options make another engine than before

Recipe = dict[str, Any]


class Gpu(NamedTuple):
    """The GPU that engines are built for and run on here."""

    name: str
    compute_capability: str

    def __str__(self) -> str:
        return f"{self.name} (compute capability {self.compute_capability})"


def recipe_of(options: Options, gpu: Gpu | None) -> Recipe:
    """Return what decides what the engine will be; `gpu` is the one here, if there is one."""
    return {
        "rules": RULES,
        "model": hash_of(options.model, options.owner),
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


def key_of(recipe: Recipe) -> str:
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()


def _target(options: Options, gpu: Gpu | None) -> Any:
    """For which GPUs: compute capabilities, or the one here by name, or as far as the engine is to be compatible."""
    if options.library.builds_for_any:
        return sorted(options.compute_capability) or "any"
    if gpu is None:
        raise hami.ConfigError(
            f"{options.owner}: {options.library} builds for the GPU at hand, and there is none; build where it will run"
        )
    if options.hardware_compatible == "ampere_plus":
        return "ampere_plus"
    if options.hardware_compatible == "same_compute_capability":
        return [gpu.compute_capability]
    return str(gpu)


def differences(wanted: Recipe, found: Recipe) -> str:
    """Say what of a recipe is another one than wanted, in one line: `max is ["4"], wanted ["8"]`."""
    return "; ".join(
        f"{name} is {json.dumps(found.get(name))}, wanted {json.dumps(wanted.get(name))}"
        for name in dict.fromkeys((*wanted, *found))
        if wanted.get(name) != found.get(name)
    )


def unfit(recipe: Recipe, library: Library, gpu: Gpu | None) -> str | None:
    """Say why an engine of this recipe cannot run with the library and the GPU that are here; None if it may."""
    made = f"{recipe.get('library')} {recipe.get('version')}"
    same_major = str(recipe.get("version")).split(".")[0] == library.version.split(".")[0]
    if recipe.get("library") != library.name or (
        recipe.get("version") != library.version and not (recipe.get("version_compatible") and same_major)
    ):
        return f"it was built by {made}, here is {library}"
    target = recipe.get("gpu")
    if gpu is None or target == "any":
        return None
    if target == "ampere_plus":
        fits = float(gpu.compute_capability) >= 8
    elif isinstance(target, list):
        fits = gpu.compute_capability in target
    else:
        fits = target == str(gpu)
    shown = f"compute capability {', '.join(target)}" if isinstance(target, list) else target
    return None if fits else f"it was built for {shown}, here is {gpu}"
