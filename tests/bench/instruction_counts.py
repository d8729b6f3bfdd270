"""Count the instructions of parsing, building and calling.

    python tests/bench/instruction_counts.py

Needs valgrind. Two processes run under callgrind: one repeats the operation LESS times, the other MORE times. The cost
of one operation is the difference of the instructions, divided by the difference of the repetitions. It includes the
Python statement around the operation; only the first figure depends on how Python was compiled.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from _measure import about_hami, about_this_machine

LESS, MORE = 10, 210
SETUP = """
import hami
from hami import _core
from hami._config import load
wide = "S[" + ",".join(["Identity"] * 100) + "]"
deep = "S[" * 100 + "Identity" + "]" * 100
longest = (
    "IoC[ModelLoadder[(.onnx)Onnx2Tensorrt,(.trt)LoadTensorrtEngine], TensorrtInferTensor; "
    "CatSplit[S[FixTensor,CatTensor],S[ContiguousTensor,TensorrtInferTensor,ProxyFromParam[post_processor]],SplitTensor]]"
)
chain = load({f"n{i}": {"backend": "Identity", **({"next": f"n{i + 1}"} if i < 199 else {})} for i in range(200)})
sequence = hami.pipe(wide)
node = load({"default": {"backend": "S[Identity,Identity]", "max": 8}})
pipe = hami.pipe("Identity")
for _ in range(TIMES):
    WORK
pipe.close()
sequence.close()
"""
OPERATIONS = {
    "an empty statement": "pass",
    "parse and print S[DecodeMat,ResizeMat(224,224)]": "_core.print_expression('S[DecodeMat,ResizeMat(224,224)]')",
    "parse and print the longest expression": "_core.print_expression(longest)",
    "parse and print S of 100 items": "_core.print_expression(wide)",
    "parse and print S in S, 100 deep": "_core.print_expression(deep)",
    "check a node with S[Identity,Identity]": "_core.check(node)",
    "build and close a pipe of it": "_core.Pipe(node).close(1.0)",
    "build and close a pipe of 200 nodes": "_core.Pipe(chain).close(10.0)",
    "call Identity": "pipe({'data': 1})",
    "call S of 100 Identity": "sequence({'data': 1})",
}


def instructions(work: str, times: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        program = SETUP.replace("TIMES", str(times)).replace("WORK", work)
        result = subprocess.run(
            [
                "valgrind",
                "--tool=callgrind",
                f"--callgrind-out-file={Path(folder) / 'out'}",
                sys.executable,
                "-c",
                program,
            ],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
    found = re.search(r"Collected : (\d+)", result.stderr)
    if found is None:
        raise RuntimeError(f"callgrind printed no count:\n{result.stderr}")
    return int(found[1])


def main() -> int:
    if not shutil.which("valgrind"):
        print("not measured: valgrind is not installed (Debian, Ubuntu: apt install valgrind)")
        return 0
    print(f"{about_this_machine()}; {about_hami()}; instructions per operation, from runs of {LESS} and {MORE}")
    for name, work in OPERATIONS.items():
        one = (instructions(work, MORE) - instructions(work, LESS)) / (MORE - LESS)
        print(f"{name:50} {one:12,.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
