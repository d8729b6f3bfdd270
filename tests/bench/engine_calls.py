"""Calls of small models through a pipe, against calls of the engine itself with the same arrays.

python tests/bench/engine_calls.py [--rounds 5] [--seconds 1.5]

Both use the cores that the process may use, and otherwise their defaults. Each cell is a process of its own; in a
round, the cells run one after the other, and ratios are taken within a round. `narrow` has three layers of 64 x 64, so
a call costs the way to the engine; `wide` has three of 1024 x 1024, so batches pay, which read the weights once. Needs
hami-onnx, onnxruntime and onnx.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "peers")]
from _load import by_tasks, by_threads  # noqa: E402
from _measure import about_hami, about_this_machine  # noqa: E402

WIDTHS = {"narrow": 64, "wide": 1024}
# Work, kind of callers, their number, contenders; the first contender is the reference.
CELLS = [
    ("narrow", "threads", 1, ("session.run", "ndarray", "Tensor")),
    ("narrow", "threads", 8, ("session.run", "ndarray", "Tensor")),
    ("narrow", "threads", 64, ("session.run", "ndarray", "Tensor")),
    ("wide", "threads", 64, ("session.run", "ndarray")),
    ("narrow", "tasks", 64, ("run_in_executor", "acall")),
]


def write_model(file: Path, width: int) -> None:
    """Write three dense layers with ReLU, from `x` N x width to `y` N x width, with random weights."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    weights, nodes, last = [], [], "x"
    for number in range(3):
        values = (random.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{number}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{number}"], [f"h{number}"]))
        last = "y" if number == 2 else f"r{number}"
        nodes.append(helper.make_node("Relu", [f"h{number}"], [last]))
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width])] for name in "xy"]
    graph = helper.make_graph(nodes, "dense", *ends, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, file)


def cell(file: Path, width: int, contender: str, callers: int, seconds: float) -> dict[str, float]:
    """Measure one contender in this process."""
    rows = list(np.random.default_rng(1).standard_normal((16, 1, width)).astype(np.float32))
    if contender in ("session.run", "run_in_executor"):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = len(os.sched_getaffinity(0))  # by default, those of the machine
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])

        def run(row: Any) -> Any:
            return session.run(None, {"x": row})[0]

        async def run_elsewhere(row: Any) -> Any:
            return await asyncio.get_running_loop().run_in_executor(None, run, row)

        if contender == "session.run":
            return by_threads(run, rows, callers, seconds)
        return by_tasks(run_elsewhere, rows, callers, seconds)

    import hami

    with hami.pipe(str(file)) as pipe:
        if contender == "acall":

            async def acall(row: Any) -> Any:
                return (await pipe.acall({"data": row}))["result"]

            return by_tasks(acall, rows, callers, seconds)
        given = [pipe({"data": row})["result"] for row in rows] if contender == "Tensor" else rows
        return by_threads(lambda row: pipe({"data": row})["result"], given, callers, seconds)


def measured(file: Path, width: int, contender: str, callers: int, seconds: float) -> dict[str, float]:
    words = [sys.executable, __file__, "--cell", file, width, contender, callers, "--seconds", seconds]
    done = subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--cell", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cell:
        file, width, contender, callers = given.cell
        print(json.dumps(cell(Path(file), int(width), contender, int(callers), given.seconds)))
        return
    rows = [(work, kind, callers, name) for work, kind, callers, names in CELLS for name in names]
    found: dict[tuple[str, str, int, str], list[dict[str, float]]] = {row: [] for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        files = {work: Path(folder) / f"{work}.onnx" for work in WIDTHS}
        for work, file in files.items():
            write_model(file, WIDTHS[work])
        for _ in range(given.rounds):
            for row in rows:
                work, _, callers, name = row
                found[row].append(measured(files[work], WIDTHS[work], name, callers, given.seconds))
    print(f"{about_this_machine()}; {about_hami()}; {given.rounds} rounds of {given.seconds} s\n")
    print("| model | callers | contender | calls/s | ratio (min … max) | CPU µs per call | p99, µs |")
    print("|---|---|---|---|---|---|---|")
    for work, kind, callers, names in CELLS:
        base = found[work, kind, callers, names[0]]
        for name in names:
            cells = found[work, kind, callers, name]
            keys = ("calls_per_s", "cpu_us", "p99_us")
            rate, cpu, late = (statistics.median(one[key] for one in cells) for key in keys)
            ratios = [one["calls_per_s"] / other["calls_per_s"] for one, other in zip(cells, base, strict=True)]
            ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} … {max(ratios):.2f})"
            print(f"| {work} | {callers} {kind} | `{name}` | {rate:,.0f} | {ratio} | {cpu:.1f} | {late:,.0f} |")


if __name__ == "__main__":
    main()
