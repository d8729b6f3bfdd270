#!/usr/bin/env bash
# onnxruntime 1.32.0: a process that taskset limits to one CPU computes on the others as well.
#
# A session with default options starts a thread for each core of the machine and not of the process, and binds each thread
# to a core of its own, also to those that taskset or os.sched_setaffinity have excluded. So two programs that were given
# disjoint CPUs share all of them, and a comparison "on two cores" gives the engine every core: pinned to 2 of 16 cores, one
# used about 14. With intra_op_num_threads set to any number above 1, the threads stay where the process may run.
# Seen on 29 November 2026, x86-64, 2 and 16 cores, CPython 3.11 and 3.12. Needs two CPUs. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnx==1.23.1 numpy
cat >"$work/threads.py" <<'PY'
import os

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

cpus = sorted(os.sched_getaffinity(0))
assert len(cpus) > 1, "needs two CPUs"
os.sched_setaffinity(0, cpus[:1])

ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 64])] for name in "xy"]
weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "graph", *ends, [weight])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def cpus_of_new_threads(options):
    before = set(os.listdir("/proc/self/task"))
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    threads = set(os.listdir("/proc/self/task")) - before
    found = sorted(sorted(os.sched_getaffinity(int(thread))) for thread in threads)
    del session
    return found


default = cpus_of_new_threads(onnxruntime.SessionOptions())
two = onnxruntime.SessionOptions()
two.intra_op_num_threads = 2
given = cpus_of_new_threads(two)
print(f"onnxruntime {onnxruntime.__version__}; CPUs of the process: {cpus[:1]} of {cpus}")
print(f"CPUs of the threads of a session by default: {default}; with intra_op_num_threads = 2: {given}")
assert any(set(each) - set(cpus[:1]) for each in default)
assert given == [cpus[:1]]
PY
"$work/env/bin/python" "$work/threads.py"
