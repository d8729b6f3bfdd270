"""Measures priorities and preemption of hami-accel on its device `onnx`; the results are in accel.md.

    python tests/bench/accel.py --seconds 20 --rounds 3

Four closed-loop callers keep one core busy with a model of about 190 ms. A second model of about 0.4 ms is called at
4/s, with exponential times between the calls. Every round measures all modes one after the other.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from hami_accel import AccelModel, engine_of
from hami_accel.onnx_device.device import OnnxDevice
from onnx import TensorProto, helper, numpy_helper

CALLERS = 4
RATE = 4.0  # urgent calls per second
LIMIT_US = 10_000  # max_time_per_fc
URGENT = 255
# mode: cut, abort, priority of the urgent calls, preemption
MODES = {
    "FIFO": (0, False, 0, False),
    "priority queue": (0, False, URGENT, False),
    "cut": (LIMIT_US, False, URGENT, True),
    "cut and abort": (LIMIT_US, True, URGENT, True),
}


def write_model(path: Path, layers: int, size: int, channels: int = 32) -> Path:
    """Write a chain of 3x3 convolutions."""
    rng = np.random.default_rng(0)
    nodes, weights, name = [], [], "x"
    for layer in range(layers):
        weight = rng.standard_normal((channels, channels, 3, 3)).astype(np.float32) / (3 * channels**0.5)
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        nodes.append(helper.make_node("Conv", [name, f"w{layer}"], [f"c{layer}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"]))
        name = f"r{layer}"
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, channels, size, size]) for n in ("x", name)]
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def calibrated(folder: Path, name: str, seconds: float, size: int) -> Path:
    """Write a model that takes about `seconds` on one thread."""
    layers = 4
    for _ in range(3):
        with AccelModel(write_model(folder / name, layers, size), device=OnnxDevice(threads=1)) as model:
            one = model.benchmark(10)["min_us"] * 1e-6 / layers
        layers = max(1, round(seconds / one))
    return write_model(folder / name, layers, size)


class Mode:
    """The two models on a device of one mode."""

    def __init__(self, name: str, slow: Path, fast: Path) -> None:
        limit, abort, self.priority, preempt = MODES[name]
        self.device = OnnxDevice(threads=1, abort=abort)
        engine_of(self.device, preempt=preempt)
        self.slow = AccelModel(slow, CALLERS, device=self.device, max_time_per_fc=limit)
        self.fast = AccelModel(fast, 64, device=self.device)
        self.latencies: list[float] = []
        self.done, self.seconds = 0, 0.0

    def measure(self, seconds: float, seed: int) -> None:
        stop = threading.Event()
        counts = [0] * CALLERS

        def call(number: int) -> None:
            data = np.zeros(self.slow.inputs[0].shape, np.float32)
            while not stop.is_set():
                self.slow.wait(self.slow.start(data, slot=number, priority=0))
                counts[number] += 1

        callers = [threading.Thread(target=call, args=(number,)) for number in range(CALLERS)]
        for caller in callers:
            caller.start()
        began = time.perf_counter()
        self._call_urgent(began, seconds, random.Random(seed))
        self.done += sum(counts)
        self.seconds += time.perf_counter() - began
        stop.set()
        for caller in callers:
            caller.join()

    @property
    def rate(self) -> float:
        """Background tasks per second."""
        return self.done / self.seconds

    def _call_urgent(self, began: float, seconds: float, rng: random.Random) -> None:
        data = np.zeros(self.fast.inputs[0].shape, np.float32)
        pending = threading.Semaphore(0)
        count, due = 0, began
        while (due := due + rng.expovariate(RATE)) < began + seconds:
            time.sleep(max(0.0, due - time.perf_counter()))

            def end(ticket: Any, due: float = due) -> None:
                self.latencies.append(time.perf_counter() - due)
                self.fast.wait(ticket)
                pending.release()

            self.fast.start(data, priority=self.priority).add_done_callback(end)
            count += 1
        for _ in range(count):
            pending.acquire()


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def overhead(folder: Path, runs: int) -> None:
    """Print what a slot adds to a call, for a model that is shorter than a thread change and for a longer one."""
    print("| model | way | median us | added us |\n|---|---|---|---|")
    for name, size, channels in (("tiny.onnx", 8, 4), ("short.onnx", 48, 16)):
        compare(write_model(folder / name, 1, size, channels), runs)


def compare(path: Path, runs: int) -> None:
    """Compare calls through a slot with calls of the session, interleaved."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    device = OnnxDevice(threads=1)
    with AccelModel(path, device=device) as model, AccelModel(path, device=device) as bound:
        data = np.zeros(model.inputs[0].shape, np.float32)
        bound.bind(0, "x", data)
        ways = {
            "`session.run` of ONNX Runtime": lambda: session.run(None, {"x": data}),
            "`infer`": lambda: model.infer(data),
            "`start` and `wait`": lambda: model.wait(model.start(data)),
            "`start` and `wait`, the input is bound": lambda: bound.wait(bound.start()),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(runs):
            for name, way in ways.items():
                times[name].append(seconds_of(way))
        base = statistics.median(next(iter(times.values())))
        for name, values in times.items():
            middle = statistics.median(values)
            print(f"| {path.name} | {name} | {middle * 1e6:.1f} | {(middle - base) * 1e6:.1f} |")
        rejected = [seconds_of(lambda: rejects(model, data)) for _ in range(runs)]
        middle, slowest = statistics.median(rejected), percentile(rejected, 0.99)
        print(f"| {path.name} | an impossible deadline | {middle * 1e6:.1f}, p99 {slowest * 1e6:.1f} | |")


def seconds_of(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def rejects(model: AccelModel, data: Any) -> None:
    try:
        model.start(data, deadline=1e-9)
    except TimeoutError:
        return
    raise AssertionError("an impossible deadline was accepted")


def report(modes: dict[str, Mode], longest: float, alone: float) -> None:
    """Print the table of the modes, and the goals of the issue with what was measured.

    Args:
        modes: the measured modes by name.
        longest: milliseconds of the longest piece.
        alone: milliseconds of the urgent model alone.
    """
    print("\n| mode | urgent calls | p50 ms | p90 ms | p99 ms | max ms | background tasks/s | lost |")
    print("|---|---|---|---|---|---|---|---|")
    base = modes["priority queue"].rate
    lost = {name: (1 - mode.rate / base) * 100 for name, mode in modes.items()}
    p99 = {name: percentile(mode.latencies, 0.99) * 1e3 for name, mode in modes.items()}
    for name, mode in modes.items():
        ms = [value * 1e3 for value in mode.latencies]
        print(
            f"| {name} | {len(ms)} | {percentile(ms, 0.5):.2f} | {percentile(ms, 0.9):.2f} | {p99[name]:.2f} | "
            f"{max(ms):.2f} | {mode.rate:.2f} | {lost[name]:+.1f} % |"
        )
    cut, abort = p99["cut"], p99["cut and abort"]
    limit = LIMIT_US / 1e3 + longest + 2 * alone
    goals = [
        (
            "Q1: p99 ≤ 10 ms + one piece + 2 times alone, by cutting",
            f"{cut:.1f} ms; the goal is {limit:.1f} ms",
            cut <= limit,
        ),
        ("Q1: ≥ 20 times below FIFO", f"{p99['FIFO'] / cut:.0f} times", p99["FIFO"] >= 20 * cut),
        (
            "Q1: ≥ 5 times below a priority queue",
            f"{p99['priority queue'] / cut:.0f} times",
            p99["priority queue"] >= 5 * cut,
        ),
        ("Q2: p99 ≤ 8 ms with abort", f"{abort:.1f} ms", abort <= 8),
        ("Q2: ≥ 100 times below FIFO", f"{p99['FIFO'] / abort:.0f} times", p99["FIFO"] >= 100 * abort),
        ("Q3: ≤ 10 % of the background lost by cutting", f"{lost['cut']:.1f} %", lost["cut"] <= 10),
        ("Q3: ≤ 15 % lost with abort", f"{lost['cut and abort']:.1f} %", lost["cut and abort"] <= 15),
    ]
    print("\n| goal | measured | |\n|---|---|---|")
    for goal, measured, met in goals:
        print(f"| {goal} | {measured} | {'met' if met else 'missed'} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each mode in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=3000, help="for the time that a slot adds")
    given = parser.parse_args()
    print(
        f"onnxruntime {onnxruntime.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, ", end=""
    )
    print(f"load average {os.getloadavg()[0]:.1f}\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        overhead(folder, given.calls)
        slow, fast = calibrated(folder, "slow.onnx", 0.19, 112), calibrated(folder, "fast.onnx", 0.0004, 32)
        modes = {mode: Mode(mode, slow, fast) for mode in MODES}
        whole, cut = modes["FIFO"].slow.benchmark(10), modes["cut"].slow.benchmark(10)
        alone = modes["FIFO"].fast.benchmark(500)
        pieces = modes["cut"].slow.summary()["piece_us"]
        print(f"\nThe background model takes {whole['p50_us'] / 1e3:.1f} ms as a whole, and ", end="")
        print(f"{cut['p50_us'] / 1e3:.1f} ms in {len(pieces)} pieces of at most {max(pieces) / 1e3:.1f} ms.")
        print("The urgent model alone takes ", end="")
        print(f"{alone['p50_us']:.0f} us, p99 {alone['p99_us']:.0f} us.")
        for number in range(given.rounds):
            for mode in modes.values():
                mode.measure(given.seconds, number)
        report(modes, max(pieces) / 1e3, alone["p50_us"] / 1e3)
        print(f"\nload average at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
