"""How much longer a model takes to open because it is found out whether its requests may be joined.

    python tests/bench/model_opening.py MODEL.onnx [ROUNDS]

Each opening has a process of its own, in turn: with `batched = false` (without), with an empty cache of findings
(first), and with the finding in the cache (cached). The ratios are medians over the rounds, of the wall time and of the
time on the processors; the latter says more on a machine that does other work.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

ENGINES = {"OnnxTensor": "hami_onnx", "OpenvinoTensor": "hami_openvino"}
# A small model is opened first, so that the engine is loaded.
SMALL = '<ir_version: 8, opset_import: ["": 17]> small (float[n, 4] x) => (float[n, 4] y) { y = Relu (x) }'
OPEN = """if True:
    import json, sys, time, hami
    engine, small, model, how = sys.argv[1:]
    with hami.pipe({"backend": engine, "model": small, "batched": False}):
        pass
    config = {"backend": engine, "model": model, **({"batched": False} if how == "without" else {})}
    wall, processor = time.perf_counter(), time.process_time()
    with hami.pipe(config):
        print(json.dumps([time.perf_counter() - wall, time.process_time() - processor]))
"""


def opened(engine: str, small: Path, model: Path, how: str, cache: str) -> list[float]:
    command = [sys.executable, "-c", OPEN, engine, str(small), str(model), how]
    env = {**os.environ, "XDG_CACHE_HOME": cache, "PYTHONPYCACHEPREFIX": str(small.parent / "bytecode")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode: nothing is compiled
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    times: list[float] = json.loads(done.stdout.splitlines()[-1])
    return times


def measure(engine: str, small: Path, model: Path, rounds: int) -> None:
    times: dict[str, list[list[float]]] = {"without": [], "first": [], "cached": []}
    with tempfile.TemporaryDirectory() as known:
        opened(engine, small, model, "cached", known)
        for _ in range(rounds):
            for how, each in times.items():
                with tempfile.TemporaryDirectory() as empty:
                    each.append(opened(engine, small, model, how, known if how == "cached" else empty))
    for index, unit in enumerate(("wall", "processor")):
        shown = [f"without {statistics.median(each[index] for each in times['without']) * 1000:.0f} ms"]
        for how in ("first", "cached"):
            pairs = zip(times[how], times["without"], strict=True)
            shown.append(f"{how} {statistics.median(a[index] / b[index] for a, b in pairs):.3f}")
        print(f"{engine} {model.name} {unit}: {', '.join(shown)}", flush=True)


def main() -> None:
    import onnx.parser

    model, rounds = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 9
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder, "small.onnx")
        small.write_bytes(onnx.parser.parse_model(SMALL).SerializeToString())
        for engine, package in ENGINES.items():
            if find_spec(package):
                measure(engine, small, model, rounds)


if __name__ == "__main__":
    main()
