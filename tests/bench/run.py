"""Run the benchmarks of results.md one after the other, and print their figures as one report.

    python tests/bench/run.py                      all
    python tests/bench/run.py call peers           only these
    python tests/bench/run.py --list               what there is, and what each needs

Run it with the Python of an environment that has the wheels, such as that of ci/test. A benchmark that needs something
that is missing says so, and the others run. The data of the peers are written to build/bench once.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from _measure import about_hami, about_this_machine

ROOT = Path(__file__).resolve().parents[2]
BENCH = "tests/bench"
DATA = "build/bench"
RECOGNIZER = "build/bench/PP-OCRv6_rec_small.onnx"


class Benchmark(NamedTuple):
    """One program with its arguments, and what it needs beside the wheels of HAMi."""

    command: str
    needs: str = ""


PEERS = f"the packages of {BENCH}/peers/requirements.txt"
BENCHMARKS = {
    "call": Benchmark(f"{BENCH}/call_overhead.py"),
    "import": Benchmark(f"{BENCH}/import_time.py"),
    "build": Benchmark(f"{BENCH}/parse_and_build_time.py"),
    "instructions": Benchmark(f"{BENCH}/instruction_counts.py", "valgrind"),
    "discovery": Benchmark(f"{BENCH}/plugin_discovery.py", "a C++ compiler"),
    "wheels": Benchmark(f"{BENCH}/wheel_sizes.py", "dist/, written by ci/wheels"),
    "peers": Benchmark(f"{BENCH}/peers/compare.py {DATA}", PEERS),
    "default": Benchmark(
        f"{BENCH}/peers/compare.py {DATA} --only jpeg,mlp,fake --contenders hami,best,default --rounds 7", PEERS
    ),
    "servers": Benchmark(f"{BENCH}/peers/servers.py {DATA} --rounds 5", f"{PEERS}, litserve and mosec; wrk"),
    "doors": Benchmark(f"{BENCH}/peers/doors.py", "hami-serve[grpc], litserve, mosec and uvicorn; wrk and h2load"),
    "serve": Benchmark(f"{BENCH}/serve_load.py --grpc", "hami-serve[grpc]"),
    "perf-analyzer": Benchmark(f"{BENCH}/serve_perf_analyzer.py --rounds 3", "perf_analyzer of tritonclient"),
    "swaps": Benchmark(f"{BENCH}/serve_swaps.py"),
    "tune": Benchmark(f"{BENCH}/tune_search.py {DATA}", PEERS),
    "classes": Benchmark(f"{BENCH}/classes_of_service.py"),
    "worker": Benchmark(f"{BENCH}/identity_worker.py --rounds 7"),
    "cores": Benchmark(f"{BENCH}/identity_worker.py --rounds 5 --cores 1,2,4,8,16", "16 cores"),
    "engine": Benchmark(f"{BENCH}/engine_calls.py", "hami-onnx, onnxruntime and onnx"),
    "image": Benchmark(f"{BENCH}/image_steps.py", "hami-image"),
    "vision": Benchmark(f"{BENCH}/vision.py", "hami-vision"),
    "trace": Benchmark(f"{BENCH}/trace_cost.py 40 0.5"),
    "opening": Benchmark(f"{BENCH}/model_opening.py {RECOGNIZER} 11", f"a recognizer of PP-OCR as {RECOGNIZER}"),
    "accel": Benchmark(f"{BENCH}/accel.py --seconds 5 --rounds 12"),
    "text": Benchmark(f"{BENCH}/text/compare.py", "hami-text[serve]; it makes the environments of the peers itself"),
    "ocr": Benchmark("hami-plugins/hami-ocr/bench/ocr_vs_rapidocr.py", "rapidocr and scikit-image"),
    "openvino": Benchmark("hami-plugins/hami-openvino/bench/pipe_vs_async_infer_queue.py 5 2", "hami-openvino"),
}


def run(command: str) -> int:
    """Run a program of this repository with this Python, and return its exit status."""
    return subprocess.run([sys.executable, *command.split()], cwd=ROOT, check=False).returncode


def make_data() -> None:
    """Write the models and photographs of the peers, where they are missing."""
    if not (ROOT / DATA).exists():
        for program in ("make_models", "make_images"):
            run(f"{BENCH}/peers/{program}.py {DATA}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", metavar="NAME", help="run only these")
    parser.add_argument("--list", action="store_true", help="print the benchmarks, and run nothing")
    asked = parser.parse_args()
    if asked.list:
        for name, each in BENCHMARKS.items():
            print(f"{name:14} {each.command}{f'  (needs {each.needs})' if each.needs else ''}")
        return 0
    unknown = sorted(set(asked.name) - BENCHMARKS.keys())
    if unknown:
        parser.error(f"{', '.join(unknown)} is not a benchmark; known are {', '.join(BENCHMARKS)}")
    print(f"{about_this_machine()}; {about_hami()}; load {os.getloadavg()[0]:.1f}", flush=True)
    missed = []
    for name in asked.name or BENCHMARKS:
        command, needs = BENCHMARKS[name]
        print(f"\n## {name}: python {command}\n", flush=True)
        if DATA in command:
            make_data()
        if run(command):
            missed.append(name)
            print(f"not measured{f': needs {needs}' if needs else ''}", flush=True)
    print(f"\nnot measured: {', '.join(missed) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
