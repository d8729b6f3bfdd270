"""decide_joining: the user, the proof, the test, and the cache."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import node, value

from hami_model_check import findings, rows
from hami_model_check.joining import Measurement, decide_joining
from hami_model_check.rows import Reason, RowProof

MIXES = RowProof("mixes", {"x": 0}, {}, Reason("DynamicQuantizeLinear", "q", 17, "scales all rows"), quantized=True)
UNKNOWN = RowProof("unknown", {}, {}, Reason("acme.Odd", "", 1, "is not known"))
INDEPENDENT = RowProof("independent", {"x": 0, "s": None}, {"y": 1})


@pytest.fixture
def decide(save, tmp_path, monkeypatch):
    """decide(proof, measured, …) → the decision; `decide.asked` lists who was asked."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(findings, "_in_memory", {})
    path = save(node("Relu"))
    asked = []

    def ask(proof, measured=None, **options):
        def prove(*_, **__):
            asked.append("proof")
            return proof

        def measure():
            asked.append("test")
            return measured

        monkeypatch.setattr(rows, "prove_rows", prove)
        options.setdefault("measure", measure if measured else None)
        return decide_joining(path, backend="AcmeTensor", engine="acme 1", **options)

    ask.asked = asked
    return ask


def test_proven_rows_are_joined_along_their_axes(decide):
    joining = decide(INDEPENDENT)
    assert (joining.joins, joining.source) == (True, "proven")
    assert joining.reason == ("the graph proves that rows are independent (x: axis 0, s: shared, y: axis 1)")


def test_rows_that_mix_are_not_joined_unless_the_user_asks_for_it(decide):
    joining = decide(MIXES, Measurement("independent", {"x": 0}, {"y": 0}, "", 0.0))
    assert not joining.joins
    assert joining.reason == ('rows influence each other: DynamicQuantizeLinear (opset 17, node "q") scales all rows')
    assert "static scales, or set batched = true" in joining.advice
    assert decide.asked == ["proof"]  # a test cannot disprove a proof
    assert decide(MIXES, batched=True).joins


def test_a_model_of_scikit_learn_with_maps_says_how_to_export_arrays(decide):
    joining = replace(decide(MIXES), verdict="unknown", operator="ai.onnx.ml.ZipMap", quantized=False)
    assert joining.advice.startswith('export the model with options={"zipmap": False} of skl2onnx')


def test_batched_false_asks_nobody(decide):
    assert not decide(INDEPENDENT, batched=False).joins
    assert decide.asked == []


@pytest.mark.parametrize("verdict", ["independent", "mixes", "unknown"])
def test_what_is_not_proven_is_tested_once(decide, verdict):
    found = Measurement(verdict, {"x": 0}, {"y": 0}, "" if verdict == "independent" else "seen", 1e-7)
    first, second = decide(UNKNOWN, found), decide(UNKNOWN, found)
    findings._in_memory.clear()
    assert decide(UNKNOWN, found) == first == second
    assert decide.asked.count("test") == 1
    assert first.joins == (verdict == "independent")
    if verdict == "unknown":
        assert first.reason == (
            "it is not known whether rows influence each other: acme.Odd (opset 1) is not known; "
            "the test could not run: seen"
        )


def test_an_override_of_what_is_not_known_is_not_tested(decide):
    joining = decide(UNKNOWN, Measurement("mixes", {}, {}, "seen", 1.0), batched=True)
    assert (joining.joins, joining.source) == (True, "declared")
    assert decide.asked == ["proof"]


def test_an_override_of_what_a_test_found_warns_once(decide, caplog):
    found = Measurement("mixes", {"x": 0}, {"y": 0}, "y differs", 1.0)
    decide(UNKNOWN, found)
    for _ in range(2):
        joining = decide(UNKNOWN, found, batched=True)
        joining.warn_of_override("AcmeTensor", "override.pt2")
    assert decide.asked.count("test") == 1
    (record,) = caplog.records
    assert record.getMessage() == (
        "AcmeTensor: batched = true joins the requests of override.pt2, although rows influence each other: y differs"
    )


def test_without_a_proof_the_test_decides(decide):
    found = Measurement("mixes", {"x": 0}, {"y": 0}, "y differs", 1.0)
    joining = decide(INDEPENDENT, found, rules=None)
    assert decide.asked == ["test"]
    assert joining.explained == (
        "rows influence each other (x: axis 0, y: axis 0): y differs; change the model so that it computes each row by "
        "itself (batch normalisation in eval mode, static scales, no softmax, sort or mean along this axis), or set "
        "batched = true to accept answers that depend on their neighbours"
    )
    assert joining.finding("m.pt2") == f'"m.pt2": requests run one by one: {joining.explained}'


def test_nothing_is_kept_about_a_model_without_a_file(decide):
    found = Measurement("independent", {"x": 0}, {"y": 0}, "", 0.0)
    for _ in range(2):
        joining = decide_joining(None, backend="AcmeTensor", engine="acme 1", measure=lambda: found)
        assert (joining.joins, joining.source) == (True, "measured")
    assert findings._in_memory == {}


def test_an_entry_that_does_not_fit_is_not_used(decide, monkeypatch):
    monkeypatch.setattr(findings, "_SETTLED_NS", 0)
    assert not decide(MIXES).joins
    assert decide.asked == ["proof"]
    assert not decide(MIXES).joins
    assert decide.asked == ["proof"]
    for entry in findings._in_memory.values():
        entry.update(joins=True)
    assert not decide(MIXES).joins
    assert decide.asked == ["proof", "proof"]


@pytest.mark.parametrize("proof", [INDEPENDENT, UNKNOWN])
def test_a_model_that_takes_one_row_says_how_to_export_it_with_more(decide, save, monkeypatch, proof):
    monkeypatch.setattr(rows, "prove_rows", lambda *_, **__: proof)
    path = save(node("Relu"), inputs=[value("x", [1, 3])])
    joining = decide_joining(path, backend="AcmeTensor", engine="acme 1")
    assert joining.advice == (
        'input "x" has the fixed shape float32 [1, 3]; export the model with dynamic_shapes={"x": {0: "batch"}} of '
        "torch.onnx.export, or another free batch axis"
    )
    assert joining.finding("m.onnx").startswith('"m.onnx": requests run one by one: ')
    assert joining.facts()["requests"] == "one by one"
