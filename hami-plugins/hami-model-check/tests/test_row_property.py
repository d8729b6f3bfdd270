"""No model is called independent whose rows differ alone and together: operator conformance models and random ones."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
import onnx
import onnx.defs
import pytest
from onnx.backend.test.case.node import collect_testcases
from random_models import ROWS, RandomModel
from row_runs import axes_to_try, difference, session, with_rows

from hami_model_check import rows
from hami_model_check._rows import size
from hami_model_check._rows.guess import input_values
from hami_model_check._rows.model import load
from hami_model_check._rows.operators import NEWEST, OPERATORS
from hami_model_check._rows.value import Unknown, Value
from hami_model_check._rows.walk import Walk

_CONTROL = {"Constant", "If", "Loop", "Scan", "SequenceMap"}  # without an entry in the table


def proof_of(model: onnx.ModelProto, axes) -> rows.RowProof:
    """Prove one choice of axes, without the file and the guesses of prove_rows: there are thousands of choices."""
    return rows._proof(load(model.SerializeToString(), 1_000_000), "onnx", axes, 100_000)


@pytest.fixture(scope="module")
def cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases compute with infinities
        return [case for case in collect_testcases(None) if case.data_sets]


def test_no_conformance_model_is_falsely_independent(cases) -> None:
    seen: Counter[str] = Counter()
    wrong = []
    for case in cases:
        names = [given.name for given in case.model.graph.input]
        feeds = {
            name: np.asarray(feed) if np.isscalar(feed) else feed
            for name, feed in zip(names, case.data_sets[0][0], strict=False)
        }
        for axes in axes_to_try(feeds):
            model = with_rows(case.model, feeds, axes)
            if model is None:
                continue
            given = {name: axis for name, axis in axes.items() if axis is not None}
            proof = proof_of(model, given)
            seen[proof.verdict] += 1
            if proof.verdict == "independent":
                found = difference(model, feeds, given, proof, [0, 5, 1, 9])
                wrong += [f"{case.name} {given}: {found}"] if found else []
    assert wrong == []
    assert seen["independent"] > 1000
    assert seen["mixes"] > 800


@pytest.mark.parametrize("seed", range(8))
def test_no_random_model_is_falsely_independent(seed) -> None:
    seen: Counter[str] = Counter()
    wrong = []
    for at in range(60):
        built = RandomModel(1000 * seed + at)
        model = built.build("rows")
        proof = proof_of(model, built.axes)
        seen[proof.verdict] += 1
        if proof.verdict == "independent":
            found = difference(model, built.feeds(), built.axes, proof, [3, 8, 0, 14, 5])
            wrong += [f"model {1000 * seed + at}: {found}"] if found else []
    assert wrong == []
    assert min(seen["independent"], seen["mixes"]) > 5


@pytest.mark.parametrize("seed", range(2))
def test_with_a_fixed_number_of_rows_other_rows_and_the_place_change_nothing(seed) -> None:
    wrong = []
    for at in range(60):
        built = RandomModel(5000 + 1000 * seed + at)
        model = built.build(ROWS)
        proof = proof_of(model, built.axes)
        if proof.verdict != "independent":
            continue
        feeds = built.feeds()
        others = {name: feed.copy() for name, feed in feeds.items()}
        moved = {name: np.roll(feed, 1, built.axes[name]) for name, feed in feeds.items()}
        for name, axis in built.axes.items():
            np.moveaxis(others[name], axis, 0)[:-1] *= -7  # all rows but the last
        try:
            runs = session(model)
            first, second, third = (runs.run(None, given)[0] for given in (feeds, others, moved))
        except Exception:  # a shape that only another number of rows has
            continue
        axis = proof.output_axes[built.known[-1][0]]
        rows = [(first, -1), (second, -1), (third, 0)]
        last, *same = [array if axis is None else np.take(array, place, axis) for array, place in rows]
        tolerance = 1e-4 * max(1, np.nanmax(np.abs(last)))
        if not all(np.allclose(last, row, 1e-4, tolerance, equal_nan=True) for row in same):
            wrong.append(5000 + 1000 * seed + at)
    assert wrong == []


def test_the_shapes_that_the_proof_assumes_are_those_of_the_results(cases) -> None:
    """A wrong number of axes would align the batch axis of one tensor with another axis of the next."""
    wrong = []
    compared = 0
    for case in cases:
        names = [given.name for given in case.model.graph.input]
        given = zip(names, case.data_sets[0][0], strict=False)
        feeds = {name: np.asarray(feed) for name, feed in given if isinstance(feed, np.ndarray) or np.isscalar(feed)}
        for axes in axes_to_try(feeds):
            model = with_rows(case.model, feeds, axes)
            if model is None:
                continue
            chosen = {name: axis for name, axis in axes.items() if axis is not None}
            ((name, axis), *_) = chosen.items()
            found = assumed(model, chosen)
            for value, result in zip(found, case.data_sets[0][1], strict=False):
                if isinstance(value, Value) and value.shape is not None and isinstance(result, np.ndarray):
                    compared += 1
                    wrong += [] if fits(value, result, feeds[name].shape[axis]) else [f"{case.name} {chosen}: {value}"]
    assert wrong == []
    assert compared > 2000


def assumed(model, axes) -> list:
    loaded = load(model.SerializeToString(), 1_000_000)
    try:
        return next(Walk(loaded, "onnx", 100_000).outputs(input_values(loaded, axes)))
    except Unknown:
        return []


def fits(value: Value, result: np.ndarray, rows: int) -> bool:
    """Return whether the result has the axes and elements that are known of the value."""
    assert value.shape is not None
    if len(value.shape) != result.ndim:
        return False
    known = [length if isinstance(length, int) else size.per_row(length) for length in value.shape]
    for length, part, actual in zip(value.shape, known, result.shape, strict=True):
        if isinstance(part, int) and actual != (part if isinstance(length, int) else part * rows):
            return False
    elements = [np.nan if isinstance(element, size.Sum) else element for element in value.elements or ()]
    if not elements or result.dtype.kind not in "biuf":
        return True
    seen = np.asarray(elements, np.float64)
    return np.allclose(np.where(np.isnan(seen), result.ravel(), seen), result.ravel(), 1e-4, equal_nan=True)


def test_the_table_has_each_operator_of_onnx_with_its_attributes() -> None:
    known: dict[tuple[str, str], set[str]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain in ("", "ai.onnx.ml"):
            known.setdefault((schema.domain, schema.name), set()).update(schema.attributes)
    declared = {key: entry for key, entry in OPERATORS.items() if key in known}
    missing = {name for domain, name in known.keys() - declared.keys() if name not in _CONTROL}
    newer = {
        schema.name for schema in onnx.defs.get_all_schemas() if schema.since_version > NEWEST.get(schema.domain, 99)
    }
    assert missing - newer == set()
    lacks = {name: sorted(known[domain, name] - entry.attributes) for (domain, name), entry in declared.items()}
    assert {name: lacking for name, lacking in lacks.items() if lacking and name not in newer} == {}
