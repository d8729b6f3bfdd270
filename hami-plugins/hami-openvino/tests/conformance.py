"""Runs the operator cases of the package onnx through OpenvinoTensor, alone and joined with other requests.

python tests/conformance.py            # prints what became of each case that is not equal, and the counts
python tests/conformance.py --write    # writes conformance.json, which the test compares
"""

from __future__ import annotations

import functools
import json
import re
import sys
import tempfile
import textwrap
import warnings
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import hami
import numpy as np
import onnx
import openvino
from onnx import numpy_helper

from hami_openvino.differences import find_differences

EXPECTED = Path(__file__).with_name("conformance.json")
VERSIONS = {"onnx": onnx.__version__, "openvino": openvino.get_version().partition("-")[0]}
BYTES = re.compile(r"^ *\(\d+ bytes\): ")  # the size of the file, at the start of a message
RANDOM = {"Bernoulli", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial"}


class Outcome(NamedTuple):
    """What became of a case: equal, refused, listed, not loaded, not run, no tensors, no rows, one by one, random."""

    status: str
    reason: str = ""


@functools.cache
def cases() -> list[Any]:
    """Return the cases of all operators, each with a model, inputs and expected outputs."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases compute infinities on purpose
        return [case for case in load_model_tests(kind="node") if case.model is not None]


def outcome_of(case, folder: Path, *, joined: bool = False) -> Outcome:
    """Run a case. With `joined`, together with requests of other numbers along a free axis 0."""
    model = case.model
    if any(node.op_type in RANDOM for node in model.graph.node) or "bernoulli" in case.name:
        return Outcome("random", "the operator returns random numbers")
    try:
        sets = [tuple([_array(each) for each in each_side] for each_side in each_set) for each_set in case.data_sets]
    except TypeError as error:
        return Outcome("no tensors", str(error))
    if joined:
        model = _with_free_rows(model, sets[0])
        if model is None:
            return Outcome("no rows", "the inputs and outputs have no common axis 0")
    path = folder / f"{case.name}.onnx"
    path.write_bytes(model.SerializeToString())
    try:
        with hami.pipe({"backend": "OpenvinoTensor", "model": str(path)}) as pipe:
            return _run(pipe, path, model, sets, case, joined)
    except hami.ConfigError as error:
        text = str(error).splitlines()[0]
        refused = "would give other results than ONNX defines" in text
        reason = BYTES.sub("", text.partition(f'"{path}"')[2])[:120].strip()
        return Outcome("refused" if refused else "not loaded", reason)
    finally:
        path.unlink()


def _run(pipe, path, model, sets, case, joined) -> Outcome:
    constants = {constant.name for constant in model.graph.initializer}
    names = [port.name for port in model.graph.input if port.name not in constants]
    for inputs, outputs in sets:
        request = {"data": dict(zip(names, inputs, strict=False))}
        others = [{"data": {n: _other(a, turn) for n, a in request["data"].items()}} for turn in (1, 2, 3) if joined]
        try:
            pipe([request, *others]) if joined else pipe(request)
        except hami.BatchError as error:
            reasons = dict(error.errors)
            if 0 in reasons:
                return Outcome("not run", str(reasons[0]).splitlines()[0][:120])
        except hami.Error as error:
            return Outcome("not run", str(error).splitlines()[0][:120])
        result = request["result"]
        results = list(result.values()) if isinstance(result, dict) else [result]
        for index, (found, expected) in enumerate(zip(results, outputs, strict=True)):
            difference = _difference(hami.to_numpy(found), expected, case)
            if difference:
                return _listed(path, f"output {index}: {difference}")
    if joined and pipe.stats()["default"].batches > len(sets):
        return Outcome("one by one", "its rows are not independent")
    return Outcome("equal")


def _listed(path, difference: str) -> Outcome:
    listed = [each for each in find_differences(path) if not each.refused]
    if not listed:
        return Outcome("differs", difference)
    return Outcome("listed", f"{difference}; " + "; ".join(f"{each.operator}: {each.what}" for each in listed))


def _difference(found, expected, case) -> str:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype} {list(found.shape)} for {expected.dtype} {list(expected.shape)}"
    half = expected.dtype.itemsize < 4 and expected.dtype.kind not in "biu"
    if expected.dtype.kind not in "biufc":  # bfloat16
        found, expected = found.astype(np.float32), expected.astype(np.float32)
    rtol, atol = max(case.rtol, 2e-2 if half else 1e-3), max(case.atol, 1e-2 if half else 1e-4)
    close = np.isclose(found, expected, rtol=rtol, atol=atol, equal_nan=True)
    if close.all():
        return ""
    at = np.flatnonzero(~close.reshape(-1))[0]
    return f"{found.reshape(-1)[at]} for {expected.reshape(-1)[at]}"


def _array(value):
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    if value is None or isinstance(value, (list, dict, onnx.SparseTensorProto)):
        raise TypeError(f"a {type(value).__name__} is not a tensor")
    value = np.asarray(value)
    if value.dtype.kind in "OSU":
        raise TypeError("strings are not numbers")
    return value


def _other(array, turn: int):
    """Return rows that differ from those of the case."""
    if array.dtype.kind == "f":
        with np.errstate(all="ignore"):
            return ((np.roll(array, turn, axis=0) + 1) * (0.1, 10, -3)[turn - 1]).astype(array.dtype)
    return np.roll(array, turn, axis=0)


def _with_free_rows(model, data):
    """Return the model with a free axis 0 of all inputs and outputs, None if they have no common one."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    constants = {constant.name for constant in model.graph.initializer}
    ports = [port for port in [*changed.graph.input, *changed.graph.output] if port.name not in constants]
    arrays = [*data[0], *data[1]]
    if not data[0] or len(ports) != len(arrays) or len({array.shape[:1] for array in arrays}) != 1:
        return None
    if not arrays[0].shape or not arrays[0].shape[0]:
        return None
    for port in ports:
        dims = port.type.tensor_type.shape.dim
        if not dims:
            return None
        dims[0].dim_param = "rows"
    del changed.graph.value_info[:]
    return changed


def outcomes_of_part(joined: bool, part: int, parts: int) -> dict[str, Outcome]:
    """Run one in `parts` of the cases."""
    with tempfile.TemporaryDirectory() as folder:
        return {case.name: outcome_of(case, Path(folder), joined=joined) for case in cases()[part::parts]}


def counts_of(outcomes: dict[str, Outcome]) -> dict[str, int]:
    return dict(sorted(Counter(outcome.status for outcome in outcomes.values()).items()))


def others_of(outcomes: dict[str, Outcome]) -> dict[str, Outcome]:
    """Return the cases that are neither equal nor without rows."""
    return {name: each for name, each in outcomes.items() if each.status not in ("equal", "no rows")}


def grouped(outcomes: dict[str, Outcome]) -> dict[str, dict[str, list[str]]]:
    """Return the names of the cases by status and reason, as many in a line as fit."""
    names: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, (status, reason) in sorted(outcomes.items(), key=lambda item: (item[1], item[0])):
        names[status][reason].append(name)
    return {
        status: {reason: textwrap.wrap(" ".join(group), 100) for reason, group in by_reason.items()}
        for status, by_reason in names.items()
    }


def status_of_each(written: dict[str, dict[str, list[str]]]) -> dict[str, str]:
    """Return the status of each case in what `grouped` has written."""
    lines = [(status, line) for status, reasons in written.items() for group in reasons.values() for line in group]
    return {name: status for status, line in lines for name in line.split()}


def main() -> None:
    written = {"versions": VERSIONS}
    for kind in ("alone", "joined"):
        outcomes = outcomes_of_part(kind == "joined", 0, 1)
        others = others_of(outcomes)
        written[kind] = {"counts": counts_of(outcomes), "others": grouped(others)}
        if "--write" not in sys.argv:
            for name, outcome in others.items():
                print(kind, name, *outcome)
        print(kind, counts_of(outcomes))
    if "--write" in sys.argv:
        EXPECTED.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
