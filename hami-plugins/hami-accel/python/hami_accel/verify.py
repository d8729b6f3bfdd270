"""verify: compares the outputs of two models, for example of a model and its quantised form."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hami
import numpy as np

from hami_accel.model import AccelModel
from hami_accel.report import table
from hami_accel.specs import TensorSpec

HEADER = ("output", "Cosine Similarity", "np.max", "np.min", "np.mean")


@dataclass
class Difference:
    """How one output of the second model differs from that of the first, over all samples."""

    name: str
    cosine: float = 1.0  # the least of all samples
    largest: float = float("-inf")  # of |a - b|
    smallest: float = float("inf")
    total: float = 0.0
    excess: float = float("-inf")  # of |a - b| over atol + rtol * |a|
    count: int = 0

    def add(self, a: Any, b: Any, atol: float, rtol: float) -> None:
        if a.shape != b.shape:
            raise hami.ConfigError(f'output "{self.name}" has the shapes {list(a.shape)} and {list(b.shape)}')
        a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
        alike = ~np.isfinite(a) & ((a == b) | (np.isnan(a) & np.isnan(b)))
        a, b = np.where(alike, 0.0, a), np.where(alike, 0.0, b)
        with np.errstate(invalid="ignore"):  # NaN beside a number is NaN in every figure
            difference = np.abs(a - b)
            norms = float(np.linalg.norm(a) * np.linalg.norm(b))
            cosine = float(a @ b) / norms if norms else float(np.array_equal(a, b))
            excess = (difference - rtol * np.abs(a)).max() - atol
        self.cosine = float(np.minimum(self.cosine, cosine))
        self.largest = float(np.maximum(self.largest, difference.max()))
        self.smallest = float(np.minimum(self.smallest, difference.min()))
        self.excess = float(np.maximum(self.excess, excess))
        self.total, self.count = self.total + float(difference.sum()), self.count + difference.size

    @property
    def mean(self) -> float:
        return self.total / self.count

    def row(self) -> list[str]:
        values = (self.largest, self.smallest, self.mean)
        return [self.name, f"{self.cosine:.4f}", *(f"{value:.3g}" for value in values)]

    def as_json(self) -> dict[str, Any]:
        values = {"cosine": self.cosine, "max": self.largest, "min": self.smallest, "mean": self.mean}
        return {"name": self.name, **{key: value if math.isfinite(value) else None for key, value in values.items()}}


def compare(
    a: AccelModel, b: AccelModel, samples: Iterator[dict[str, Any]], atol: float = 0.0, rtol: float = 0.0
) -> list[Difference]:
    """Run both models on all samples, and return the difference of each output.

    Raises hami.ConfigError if inputs or outputs of the models do not correspond.
    """
    _check_ports("inputs", a.inputs, b.inputs)
    _check_ports("outputs", a.outputs, b.outputs)
    found = [Difference(spec.name) for spec in a.outputs]
    for sample in samples:
        first, second = _outputs(a, sample), _outputs(b, sample)
        for difference, one, other in zip(found, first, second, strict=True):
            difference.add(one, other, atol, rtol)
    return found


def _check_ports(what: str, a: Any, b: Any) -> None:
    first, second = ([(spec.name, spec.shape) for spec in specs] for specs in (a, b))
    if first != second and (what == "inputs" or len(first) != len(second)):
        raise hami.ConfigError(f"the {what} of the models differ: {first} and {second}")


def _outputs(model: AccelModel, sample: dict[str, Any]) -> list[Any]:
    result = model.infer(sample)
    arrays = list(result.values()) if isinstance(result, dict) else [result]
    return [
        array if spec.quantization is None else spec.dequantize(array)
        for spec, array in zip(model.outputs, arrays, strict=True)
    ]


def random_samples(specs: Any, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield normally distributed inputs; integers without a scale are 0 to 9."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield {spec.name: _random(spec, rng) for spec in specs}


def _random(spec: TensorSpec, rng: np.random.Generator) -> Any:
    if spec.dtype.kind == "f" or spec.quantization is not None:
        return rng.standard_normal(spec.shape).astype(spec.dtype if spec.dtype.kind == "f" else np.float32)
    return rng.integers(0, 2 if spec.dtype.kind == "b" else 10, spec.shape).astype(spec.dtype)


def run(arguments: Any) -> int:
    """The command `hami compare`. Return 1 if an output differs by more than the limits."""
    from hami_accel.recipe import read_samples

    device = arguments.device
    with (
        AccelModel(arguments.a, device=device, select=arguments.select_a) as a,
        AccelModel(arguments.b, device=device, select=arguments.select_b) as b,
    ):
        samples: Iterator[dict[str, Any]]
        if arguments.inputs:
            samples = (sample for _, sample in read_samples(Path(arguments.inputs), [spec.name for spec in a.inputs]))
        else:
            samples = random_samples(a.inputs, arguments.random, arguments.seed)
        limited = arguments.atol is not None or arguments.rtol is not None
        found = compare(a, b, samples, arguments.atol or 0.0, arguments.rtol or 0.0)
    exceeded = [d.name for d in found if not d.cosine >= arguments.cosine or (limited and not d.excess <= 0)]
    if arguments.json:
        print(json.dumps({"outputs": [difference.as_json() for difference in found], "exceeded": exceeded}))
        return 1 if exceeded else 0
    print("\n".join(table([difference.row() for difference in found], HEADER)))
    if exceeded:
        print(f"beyond the limits: {', '.join(exceeded)}")
    return 1 if exceeded else 0


def run_compile(arguments: Any) -> int:
    """The command `hami compile`."""
    from hami_accel.recipe import compile_recipe

    output = arguments.output or str(Path(arguments.recipe).with_suffix(".accel"))
    entries = compile_recipe(arguments.recipe, output)
    if arguments.json:
        models = [{"name": entry["name"], "quantization": entry["quantization"]} for entry in entries]
        print(json.dumps({"output": output, "models": models}))
        return 0
    rows = [[str(number), entry["name"], entry["quantization"]] for number, entry in enumerate(entries)]
    print("\n".join([output, *table(rows, ["", "model", "quantisation"])]))
    return 0
