"""Compares the throughput of OpenvinoTensor, called from eight threads, with that of OpenVINO's AsyncInferQueue.

    python bench/pipe_vs_async_infer_queue.py [ROUNDS] [SECONDS]

Both use the same model, the same settings (hint throughput, as many infer requests) and the same arrays, and both copy
their results. As usual for AsyncInferQueue, one thread feeds it, and it does not copy its inputs. Each round measures
both, so that other load on the machine affects both alike. The output has the medians, and the ratio within each round
(above 1: OpenvinoTensor is faster), for requests per second and for requests per second of CPU time. The latter depends
less on other load. The models are convolution networks of three sizes, which the script creates.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import hami
import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper, numpy_helper

CALLERS = 8
SIZES = {"small": (8, 32, 2), "medium": (16, 96, 4), "large": (32, 160, 6)}  # channels, image width and height, layers


def write_model(path: Path, channels: int, pixels: int, layers: int) -> None:
    """Write a model of `layers` 3 x 3 convolutions, followed by the mean of each channel."""
    random = np.random.default_rng(1)
    nodes, weights, last, width = [], [], "x", 3
    for layer in range(layers):
        values = random.standard_normal((channels, width, 3, 3)).astype(np.float32) / (3 * width**0.5)
        weights.append(numpy_helper.from_array(values, f"w{layer}"))
        nodes.append(helper.make_node("Conv", [last, f"w{layer}"], [f"c{layer}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"]))
        last, width = f"r{layer}", channels
    nodes.append(helper.make_node("ReduceMean", [last], ["y"], axes=[2, 3], keepdims=0))
    graph = helper.make_graph(
        nodes,
        "convolutions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, pixels, pixels])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, channels])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


class Queue:
    """An AsyncInferQueue that collects copies of its results."""

    def __init__(self, path: Path, jobs: int) -> None:
        compiled = openvino.Core().compile_model(str(path), "CPU", {"PERFORMANCE_HINT": "THROUGHPUT"})
        self.queue = openvino.AsyncInferQueue(compiled, jobs)
        self.queue.set_callback(self.finished)
        self.results: list[np.ndarray] = []

    def finished(self, request: openvino.InferRequest, _: object) -> None:
        self.results.append(request.get_output_tensor(0).data.copy())

    def run(self, arrays: list[np.ndarray], seconds: float) -> int:
        """Run requests for this time and return their number."""
        self.results.clear()
        end = time.perf_counter() + seconds
        count = 0
        while time.perf_counter() < end:
            self.queue.start_async({0: arrays[count % len(arrays)]}, share_inputs=True)
            count += 1
        self.queue.wait_all()
        return count


def run_pipe(pipe: hami.Pipe, arrays: list[np.ndarray], seconds: float) -> int:
    """Run requests from all callers for this time and return their number."""
    end = time.perf_counter() + seconds
    counts = [0] * CALLERS

    def caller(number: int) -> None:
        while time.perf_counter() < end:
            hami.to_numpy(pipe({"data": arrays[(number + counts[number]) % len(arrays)]})["result"])
            counts[number] += 1

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


def rates(run: Callable[[], int]) -> tuple[float, float]:
    """Return requests per second, and requests per second of CPU time."""
    wall_start, cpu_start = time.perf_counter(), time.process_time()
    count = run()
    return count / (time.perf_counter() - wall_start), count / (time.process_time() - cpu_start)


def compare(title: str, rounds: int, contenders: dict[str, Callable[[], int]]) -> None:
    for run in contenders.values():
        run()
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            measured[name].append(rates(run))
    queue_rates, pipe_rates = measured.values()
    print(f"\n{title}, {rounds} rounds")
    for index, unit in enumerate(("requests/s", "requests/s of CPU time")):
        ratios = sorted(ours[index] / theirs[index] for ours, theirs in zip(pipe_rates, queue_rates, strict=True))
        shown = [f"{name} {statistics.median(rate[index] for rate in measured[name]):.0f}" for name in contenders]
        median = statistics.median(ratios)
        print(f"  {unit:22} {' and '.join(shown)}, ratio {median:.3f} ({ratios[0]:.3f} … {ratios[-1]:.3f})")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"OpenVINO {openvino.get_version()}, {CALLERS} callers, {cores} cores, load average before: {load:.1f}")
    for name, (channels, pixels, layers) in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.onnx"
            write_model(path, channels, pixels, layers)
            random = np.random.default_rng(2)
            arrays = [random.random((1, 3, pixels, pixels), np.float32) for _ in range(CALLERS)]
            queue = Queue(path, CALLERS)
            config = {"backend": "OpenvinoTensor", "model": str(path), "hint": "throughput", "instance_num": CALLERS}
            with hami.pipe(config) as pipe:
                for data in arrays:
                    queue.queue.start_async({0: data})
                    queue.queue.wait_all()
                    result = hami.to_numpy(pipe({"data": data})["result"])
                    np.testing.assert_allclose(result, queue.results[-1], rtol=1e-5)
                compare(
                    f"{name}: {layers} layers of {channels} channels, {pixels} x {pixels}",
                    rounds,
                    {
                        "AsyncInferQueue": lambda queue=queue, arrays=arrays: queue.run(arrays, seconds),
                        "OpenvinoTensor": lambda pipe=pipe, arrays=arrays: run_pipe(pipe, arrays, seconds),
                    },
                )


if __name__ == "__main__":
    main()
