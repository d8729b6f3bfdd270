"""Compares the result of `hami tune` with the best of an exhaustive search, on the work `jpeg` of the peers.

    python tests/bench/tune_search.py DATA [SECONDS]

DATA is the folder that peers/make_models.py and peers/make_images.py have filled. SECONDS is the time of hami tune, by
default 50. The two configurations are then measured alternately; the result is the ratio of their throughput.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path
from typing import Any

import hami
from hami import _core
from hami._config import read
from hami_tools.bench.comparison import compare_throughput
from hami_tools.bench.load import Load
from hami_tools.bench.point import measure
from hami_tools.tune.parameters import Settings, parameters_of
from hami_tools.tune.search import Trial, search, seconds_of_a_measurement

BACKEND = "S[DecodeMat(color=rgb),ResizeMat(224,224),Mat2Tensor,NormalizeTensor,OnnxTensor,TopKTensor(5)]"
GRID = {"instance_num": (1, 2, 4), "threads": (0, 1, 2), "max": (1, 4, 16), "batching_timeout": (0.0,)}
GRID_SECONDS = 1.5
LOAD = Load(clients=16)
ROUNDS, ROUND_SECONDS = 60, 0.5


def main() -> None:
    data, budget = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 50.0
    inputs = [{"data": file.read_bytes()} for file in sorted((data / "jpeg").iterdir())]
    base = {"backend": BACKEND, "model": str(data / "cnn.onnx"), "mean": [127.0], "std": [128.0], "max": 1}

    def build(settings: Settings) -> hami.Pipe:
        return hami.pipe({"jpeg": {**base, **{key: value for (_, key), value in settings.items()}}})

    parameters = parameters_of(_core.describe(read({"jpeg": base})[0]), None, LOAD.clients)
    begin = time.monotonic()
    found = search(Trial(build, inputs, LOAD, None, seconds_of_a_measurement(budget)), parameters, budget, print)
    print(f"hami tune: {time.monotonic() - begin:.0f} s, {found.trials} trials, {found.settings}, {found.ratio:.2f}")
    best = exhaustive(build, inputs)
    with build(best) as one, build(found.settings) as other:
        ratio, first, second = compare_throughput((one, other), inputs, LOAD, ROUNDS * ROUND_SECONDS, ROUNDS)
    print(f"exhaustive: {best}: {first.throughput:.1f} per second; hami tune: {second.throughput:.1f}")
    print(f"ratio {ratio.ratio:.3f}, 95 % interval {ratio.low:.3f} to {ratio.high:.3f}, {ratio.rounds} rounds")


def exhaustive(build: Any, inputs: list[dict[str, Any]]) -> Settings:
    """Measure every combination and return the one with the highest throughput."""
    rates: list[tuple[float, Settings]] = []
    for values in itertools.product(*GRID.values()):
        settings: Settings = {("jpeg", key): value for key, value in zip(GRID, values, strict=True)}
        with build(settings) as pipe:
            rates.append((measure(pipe, inputs, LOAD, GRID_SECONDS).throughput, settings))
    rates.sort(key=lambda entry: -entry[0])
    for rate, settings in rates[:5]:
        print(f"{rate:8.1f}  {settings}")
    return rates[0][1]


if __name__ == "__main__":
    main()
