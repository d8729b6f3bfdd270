"""Measure parsing of a long expression, building of a large pipe, and calls of a long sequence.

    python tests/bench/parse_and_build_time.py

Operations alternate in rounds and each is timed separately. The cost of a child of a sequence is the difference between
S of 100 and S of 1, divided by 99.
"""

from __future__ import annotations

import statistics
import sys

import hami
from _measure import about_hami, about_this_machine, alternate, show
from hami import _core
from hami._config import load

ROUNDS, CALLS = 5, 30
LONGEST = (
    "IoC[ModelLoadder[(.onnx)Onnx2Tensorrt,(.trt)LoadTensorrtEngine], TensorrtInferTensor; "
    "CatSplit[S[FixTensor,CatTensor],S[ContiguousTensor,TensorrtInferTensor,ProxyFromParam[post_processor]],SplitTensor]]"
)
CHAIN = {f"n{i}": {"backend": "Identity", **({"next": f"n{i + 1}"} if i < 199 else {})} for i in range(200)}


def main() -> int:
    print(f"{about_this_machine()}; {about_hami()}; {ROUNDS} rounds of {CALLS} calls")
    config = load(CHAIN)
    many = hami.pipe("S[" + ",".join(["Identity"] * 100) + "]")
    one = hami.pipe("S[Identity]")
    request = {"data": 1}
    timed = alternate(
        {
            "parse and print the longest expression": lambda: _core.print_expression(LONGEST),
            "S of 1 Identity": lambda: one(request),
            "S of 100 Identity": lambda: many(request),
            "read a configuration of 200 nodes": lambda: load(CHAIN),
            "build and close a pipe of 200 nodes": lambda: _core.Pipe(config).close(10.0),
        },
        ROUNDS,
        CALLS,
    )
    show(timed, "S of 1 Identity")
    medians = {name: statistics.median(call for calls in rounds for call in calls) for name, rounds in timed.items()}
    print(f"a child of S: {(medians['S of 100 Identity'] - medians['S of 1 Identity']) / 99:.3f} µs")
    one.close()
    many.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
