"""compile_recipe: quantises models as a recipe says, and packs them into one file."""

from __future__ import annotations

import importlib
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hami
import numpy as np

from hami_accel.model import AccelModel
from hami_accel.packed import write_packed

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11; hami-core depends on tomli there
    import tomli as tomllib

QUANTIZATIONS = ("none", "dynamic", "static", "qdq")
_KEYS = {"name", "file", "inputs", "max_time_per_fc", "quantization", "calibration"}
_INPUT_KEYS = {"dtype", "shape", "layout"}


def compile_recipe(recipe: str | os.PathLike[str], output: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Compile the models of a recipe into a packed file, and return the entries of its manifest.

    Raises hami.ConfigError if the recipe, a model or its calibration data are wrong. No file is written then.
    """
    folder = Path(recipe).parent
    entries = _read(Path(recipe))
    packed = []
    with tempfile.TemporaryDirectory(prefix="hami-accel-") as work:
        for number, entry in enumerate(entries):
            where = f'"{os.fspath(recipe)}", model {number}'
            unknown = set(entry) - _KEYS
            if unknown or "file" not in entry:
                raise hami.ConfigError(f"{where}: takes {sorted(_KEYS)} with a file, got {sorted(entry)}")
            packed.append(_compile(entry, folder, Path(work) / f"{number}.onnx", where))
    write_packed(output, packed)
    return [dict(entry) for entry, _ in packed]


def _read(recipe: Path) -> list[dict[str, Any]]:
    try:
        text = recipe.read_text("utf-8")
    except OSError as error:
        raise hami.ConfigError(f'"{recipe}" cannot be read: {error.strerror}') from error
    except UnicodeDecodeError as error:
        raise hami.ConfigError(f'"{recipe}" is not text in UTF-8: {error}') from error
    try:
        if recipe.suffix in (".yaml", ".yml"):
            models = importlib.import_module("yaml").safe_load(text)["model"]
        else:
            models = tomllib.loads(text)["model"]
    except ImportError as error:
        raise hami.ConfigError(f'"{recipe}": recipes in YAML need PyYAML: pip install PyYAML, or use TOML') from error
    except Exception as error:  # yaml's and tomllib's errors, and a missing key
        raise hami.ConfigError(f'"{recipe}" is not a recipe with a list of tables "model": {error}') from error
    if not isinstance(models, list) or not models or not all(isinstance(model, dict) for model in models):
        raise hami.ConfigError(f'"{recipe}" is not a recipe: "model" must be a list of tables')
    return models


def _compile(entry: Mapping[str, Any], folder: Path, work: Path, where: str) -> tuple[dict[str, Any], bytes]:
    given = entry.get("inputs", {})
    limit = entry.get("max_time_per_fc", 0)
    if not isinstance(entry["file"], str):
        raise hami.ConfigError(f"{where}: file must be the path of a model, got {entry['file']!r}")
    if not isinstance(given, dict) or not all(isinstance(facts, dict) for facts in given.values()):
        raise hami.ConfigError(f"{where}: inputs must be a table with a table for each input, got {given!r}")
    if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 <= limit < math.inf:
        raise hami.ConfigError(f"{where}: max_time_per_fc must be microseconds, or 0 to not split, got {limit!r}")
    source = folder / entry["file"]
    for name, facts in given.items():
        if set(facts) - _INPUT_KEYS:
            raise hami.ConfigError(f'{where}: input "{name}" takes {sorted(_INPUT_KEYS)}, got {sorted(facts)}')
    shapes = {name: facts["shape"] for name, facts in given.items() if "shape" in facts}
    with AccelModel(source, device="onnx", shapes=shapes) as model:
        specs = {spec.name: spec for spec in model.inputs}
    for name, facts in given.items():
        if name not in specs:
            raise hami.ConfigError(f"{where}: the model has the inputs {sorted(specs)}, got {name!r}")
        if "dtype" in facts and facts["dtype"] != specs[name].dtype.name:
            raise hami.ConfigError(f'{where}: input "{name}" is {specs[name].dtype}, got {facts["dtype"]}')
    quantization = entry.get("quantization", "none")
    if quantization not in QUANTIZATIONS:
        raise hami.ConfigError(f"{where}: quantization must be one of {QUANTIZATIONS}, got {quantization!r}")
    if quantization == "none":
        data = _whole(source, where)
    else:
        samples = [] if quantization == "dynamic" else _samples(entry, folder, specs, where)
        data = _quantized(source, work, quantization, samples)
    manifest = {
        "name": str(entry.get("name", source.stem)),
        "max_time_per_fc": float(limit),
        "quantization": quantization,
        "shapes": {name: list(spec.shape) for name, spec in specs.items()},
        "layouts": {name: str(facts["layout"]) for name, facts in given.items() if "layout" in facts},
        "dtypes": {name: spec.dtype.name for name, spec in specs.items()},
    }
    return manifest, data


def _samples(entry: Mapping[str, Any], folder: Path, specs: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    if "calibration" not in entry:
        raise hami.ConfigError(f'{where}: static quantisation needs "calibration", a folder of .npy or .npz files')
    samples = read_samples(folder / entry["calibration"], list(specs))
    for file, sample in samples:
        for name, array in sample.items():
            if array.dtype != specs[name].dtype or array.shape != specs[name].shape:
                raise hami.ConfigError(
                    f'{where}: calibration file "{file}" has {array.dtype} {list(array.shape)} for "{name}", '
                    f"which takes {specs[name]}"
                )
    return [sample for _, sample in samples]


def read_samples(folder: Path, names: list[str]) -> list[tuple[Path, dict[str, Any]]]:
    """Return the samples of a folder: .npy for a model with one input, .npz with an array per input."""
    found = []
    for file in sorted((*folder.glob("*.npy"), *folder.glob("*.npz"))):
        try:
            loaded = np.load(file, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise hami.ConfigError(f'"{file}" is not an array file: {error}') from error
        sample = {names[0]: loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
        if set(sample) != set(names) or (isinstance(loaded, np.ndarray) and len(names) > 1):
            raise hami.ConfigError(f'"{file}" must have the arrays {sorted(names)}, got {sorted(sample)}')
        found.append((file, sample))
    if not found:
        raise hami.ConfigError(f'"{folder}" has no .npy or .npz files')
    return found


def _quantized(source: Path, work: Path, quantization: str, samples: list[dict[str, Any]]) -> bytes:
    from onnxruntime import quantization as quantizer

    try:
        if quantization == "dynamic":
            quantizer.quantize_dynamic(source, work)
        else:
            kind = quantizer.QuantFormat.QDQ if quantization == "qdq" else quantizer.QuantFormat.QOperator
            reader: Any = _Samples(samples)  # has the one method of CalibrationDataReader that is used
            quantizer.quantize_static(source, work, reader, quant_format=kind)
    except Exception as error:  # onnxruntime's quantiser has no common base class but Exception
        raise hami.ConfigError(f'"{source}" cannot be quantised ({quantization}): {error}') from error
    return _whole(work, f'"{source}"')


def _whole(file: Path, where: str) -> bytes:
    """Return a model in one piece, with the weights that it keeps in other files."""
    import onnx
    from hami_model_check.onnx import read_onnx

    external = read_onnx(file, backend="compile").external_files
    if not external:
        return file.read_bytes()
    try:
        return bytes(onnx.load(file).SerializeToString())
    except (
        Exception
    ) as error:  # a file is missing or too short, or the model exceeds 2 GiB; onnx has no common base class
        raise hami.ConfigError(
            f"{where}: the weights in {', '.join(external)} cannot be packed: {error}; a packed model has at most 2 GiB"
        ) from error


class _Samples:
    """What onnxruntime's quantiser reads calibration data from."""

    def __init__(self, samples: list[dict[str, Any]]) -> None:
        self._rest = iter(samples)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._rest, None)
